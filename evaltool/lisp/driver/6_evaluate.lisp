;;; Evaluating

(defvar *values*)
(defvar *more-values*)
(defvar *timing*)
(defvar *definitions*)

(defun evaluate-units (units code)
  (let ((values '()))
    (loop while units
          do (let ((unit (pop units)))
               (unless (eq (unit-package unit) *package*) ; an earlier form has changed the current package
                 (setf units (read-units code (unit-start unit))
                       unit (pop units)))
               (setf values (multiple-value-list (eval (unit-form unit))))
               (let ((definition (definition unit code)))
                 (when definition (push definition *definitions*)))))
    values))

(defun microseconds ()
  "Lisp's own real time has steps of milliseconds."
  (multiple-value-bind (seconds micros) (sb-ext:get-time-of-day) (+ (* 1000000 seconds) micros)))

(defun timed (function)
  "Calls FUNCTION and keeps its time and memory, even if it fails."
  (let ((real (microseconds)) (run (get-internal-run-time))
        (gc sb-ext:*gc-run-time*) (bytes (sb-ext:get-bytes-consed))
        (unit (/ internal-time-units-per-second 1000000)))
    (unwind-protect (funcall function)
      (setf *timing* (list :real-us (max 0 (- (microseconds) real))
                           :run-us (floor (- (get-internal-run-time) run) unit)
                           :gc-us (floor (- sb-ext:*gc-run-time* gc) unit)
                           :bytes-consed (max 0 (- (sb-ext:get-bytes-consed) bytes)))))))

(defparameter *value-limit* 1000 "Values that are shown.")

(defun show-values (values)
  (let ((room *limit*))
    (setf *more-values* (max 0 (- (length values) *value-limit*))
          *values* (map 'vector (lambda (value)
                                  (let ((shown (shown (lambda (out) (prin1 value out)) room)))
                                    (decf room (length (getf shown :text)))
                                    shown))
                        (subseq values 0 (min (length values) *value-limit*))))))

(defun do-evaluate (request)
  (let* ((code (getf request :code)) (units (read-user-units code)))
    (show-values (timed (lambda () (evaluate-units units code))))
    nil))

;;; Compiling, checking and expanding

(defun in-scope-of (form rest)
  "Compiles the forms REST as if FORM before them had been evaluated."
  (flet ((wrapped (operator &rest arguments) `((,operator ,@arguments nil ,@rest))))
    (cond ((not (and (consp form) (consp (cdr form)) (symbolp (cadr form)))) rest)
          ((and (eq (car form) 'defmacro) (consp (cddr form))) (wrapped 'macrolet (list (cdr form))))
          ((member (car form) '(defvar defparameter)) (wrapped 'locally `(declare (special ,(cadr form)))))
          (t rest))))

(defun as-function (forms)
  (let ((rest '()))
    (dolist (form (reverse forms))
      (setf rest (cons form (in-scope-of form rest))))
    `(lambda () nil ,@rest)))

(defun defined-by-p (name forms)
  "Returns true if one of FORMS defines the function NAME, e.g. a structure its functions."
  (flet ((starts-p (prefix) (let ((end (mismatch prefix (symbol-name name)))) (or (null end) (= end (length prefix))))))
    (loop for form in forms
          for defined = (and (consp form) (consp (cdr form)) (symbolp (car form)) (defining-operator-p (car form))
                             (defined-name (cadr form)))
            thereis (or (equal defined name)
                        (and (eq (car form) 'defstruct) (symbolp defined) (symbolp name)
                             (some #'starts-p (mapcar (lambda (control) (format nil control defined)) '("~a-" "MAKE-~a" "COPY-~a"))))))))

(defun forget-undefined (forms)
  "Drops warnings about definitions in FORMS, which are undefined only because they are not run."
  (setf sb-c::*undefined-warnings*
        (remove-if (lambda (warning) (defined-by-p (sb-c::undefined-warning-name warning) forms)) sb-c::*undefined-warnings*)))

(defun do-compile (request)
  (let ((errors (make-array 0 :adjustable t :fill-pointer t)))
    (flet ((note-error (condition)
             (when (< (length errors) *warning-limit*)
               (vector-push-extend (list :type (type-name condition) :message (message condition)) errors))))
      (block compiling
        (let ((forms (mapcar #'unit-form
                             (handler-bind ((error (lambda (e) (note-error e) (return-from compiling))))
                               (read-units (getf request :code))))))
          (handler-bind ((sb-c:compiler-error #'note-error)
                         (sb-c:fatal-compiler-error (lambda (e) (note-error e) (return-from compiling))))
            (let ((*error-output* (make-broadcast-stream)))
              (compile nil (as-function forms))))
          (forget-undefined forms))))
    (list :errors errors)))

(defun do-syntax (request)
  (let ((count 0))
    (handler-case (progn (read-each (lambda (unit) (declare (ignore unit)) (incf count)) (getf request :code))
                         (list :forms count))
      (error (e)
        (list :forms count :position (getf *problem* :at)
              :problem (list :type (type-name e) :message (message e)))))))

(defun do-expand (request)
  (let ((units (read-units (getf request :code))))
    (append (list :forms (length units))
            (when (= (length units) 1)
              (let ((form (unit-form (first units))))
                (shown (lambda (out)
                         (prin1 (if (getf request :full) (sb-walker:macroexpand-all form) (macroexpand-1 form)) out))))))))

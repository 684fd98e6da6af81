;;; Reading

(defun live-package ()
  (if (package-name *user-package*)
      *user-package*
      (setf *user-package* (find-package "COMMON-LISP-USER"))))

(defun named-package (name)
  (or (find-package name)
      (find-package (string-upcase name))
      (find name (list-all-packages) :key #'package-name :test #'string-equal)))

(defun next-package (form)
  "The package that the forms after FORM are read in."
  (or (and (consp form) (eq (car form) 'in-package) (consp (cdr form))
           (typep (cadr form) '(or string symbol character))
           (find-package (cadr form)))
      *package*))

(defun read-forms (code)
  "All forms of CODE, each with its text."
  (let ((*read-eval* nil)
        (*package* *package*)
        (end (list nil)))
    (with-input-from-string (in code)
      (loop for start = (file-position in)
            for form = (read in nil end)
            until (eq form end)
            collect (cons form (string-trim '(#\Space #\Newline #\Tab) (subseq code start (file-position in))))
            do (setf *package* (next-package form))))))

(defun read-user-forms (code)
  "As READ-FORMS; a readtable whose macros fail does not stay, for nothing could be read to mend it."
  (let ((sound nil))
    (unwind-protect
         (handler-bind (((or reader-error end-of-file) (lambda (e) (declare (ignore e)) (setf sound t))))
           (prog1 (read-forms code) (setf sound t)))
      (unless sound (setf *readtable* (copy-readtable nil))))))

;;; Evaluating

(defvar *values*)
(defvar *timing*)
(defvar *definitions*)

;;; What is recorded of a session, for one that begins with the same definitions.

(defparameter *wrapping-operators* '(progn let let* locally eval-when flet labels macrolet symbol-macrolet))

(defparameter *recorded-operators*
  '(declaim proclaim export unexport import shadow shadowing-import use-package unuse-package rename-package
    delete-package unintern fmakunbound makunbound remove-method)
  "Beside those whose name begins with DEF, as defining operators do by custom.")

(defun defining-operator-p (operator)
  (let ((name (symbol-name operator)))
    (and (> (length name) 3) (string= "DEF" name :end2 3))))

(defun defined-names (form)
  "What FORM defines, in a list, for it is one definition or has some in it."
  (cond ((not (and (consp form) (symbolp (car form)) (consp (cdr form)))) '())
        ((member (car form) *wrapping-operators*) (mapcan #'defined-names (copy-list (cdr form))))
        ((member (car form) *recorded-operators*) (list (cdr form)))
        ((eq (car form) 'defmethod) (list (method-key form)))
        ((defining-operator-p (car form)) (list (defined-name (cadr form))))))

(defun defined-name (name)
  "(SETF F) names itself, (STRUCTURE OPTION…) begins with its name."
  (if (and (consp name) (not (eq (car name) 'setf))) (car name) name))

(defun definition (form text package)
  (let ((names (defined-names form)))
    (when names
      (list :operator (symbol-name (car form))
            :name (getf (shown (lambda (out) (let ((*print-pretty* nil)) (prin1 (if (cdr names) names (car names)) out))) 4000) :text)
            :package (package-name package) :source text))))

(defun method-key (form)
  "Name, qualifiers and specializers: what makes a method the same one."
  (let ((lambda-list (find-if #'listp (cddr form))))
    (append (list (cadr form))
            (remove-if #'listp (subseq (cddr form) 0 (or (position-if #'listp (cddr form)) 0)))
            (loop for parameter in lambda-list
                  until (member parameter lambda-list-keywords)
                  collect (if (consp parameter) (cadr parameter) t)))))

(defun evaluate-forms (forms)
  (let (values)
    (loop for (form . text) in forms
          for package = *package*
          do (setf values (multiple-value-list (eval form)))
             (let ((definition (definition form text package)))
               (when definition (push definition *definitions*))))
    values))

(defun timed (function)
  "Calls FUNCTION and keeps what it took, even if it fails."
  (let ((real (get-internal-real-time)) (run (get-internal-run-time))
        (gc sb-ext:*gc-run-time*) (bytes (sb-ext:get-bytes-consed))
        (unit (/ internal-time-units-per-second 1000000)))
    (unwind-protect (funcall function)
      (setf *timing* (list :real-us (floor (- (get-internal-real-time) real) unit)
                           :run-us (floor (- (get-internal-run-time) run) unit)
                           :gc-us (floor (- sb-ext:*gc-run-time* gc) unit)
                           :bytes-consed (max 0 (- (sb-ext:get-bytes-consed) bytes)))))))

(defun show-values (values)
  (let ((room *limit*))
    (setf *values*
          (map 'vector (lambda (value)
                         (let ((shown (shown (lambda (out) (prin1 value out)) room)))
                           (decf room (length (getf shown :text)))
                           shown))
               values))))

(defun do-evaluate (request)
  (let ((forms (read-user-forms (getf request :code))))
    (show-values (timed (lambda () (evaluate-forms forms))))
    nil))

(defun do-compile (request)
  (let ((errors (make-array 0 :adjustable t :fill-pointer t)))
    (flet ((note-error (condition)
             (when (< (length errors) *warning-limit*)
               (vector-push-extend (list :type (type-name condition) :message (message condition)) errors))))
      (block compiling
        (let ((forms (handler-bind ((error (lambda (e) (note-error e) (return-from compiling))))
                       (read-forms (getf request :code)))))
          (handler-bind ((sb-c:compiler-error #'note-error)
                         (sb-c:fatal-compiler-error (lambda (e) (note-error e) (return-from compiling))))
            (let ((*error-output* (make-broadcast-stream)))
              (compile nil `(lambda () ,@(mapcar #'car forms))))))))
    (list :errors errors)))

(defun do-syntax (request)
  (let ((code (getf request :code)) (*read-eval* nil) (count 0) (end (list nil)))
    (with-input-from-string (in code)
      (handler-case
          (loop for form = (read in nil end)
                until (eq form end)
                do (incf count)
                   (setf *package* (next-package form)))
        (error (e)
          (return-from do-syntax
            (list :forms count :position (min (length code) (file-position in))
                  :problem (list :type (type-name e) :message (message e)))))))
    (list :forms count)))

(defun do-expand (request)
  (let ((forms (read-forms (getf request :code))))
    (unless (= (length forms) 1)
      (error "one form is expanded at a time; this text has ~d" (length forms)))
    (let ((form (caar forms)))
      (shown (lambda (out)
               (prin1 (if (getf request :full) (sb-walker:macroexpand-all form) (macroexpand-1 form)) out))))))

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
  "Returns the package in which the forms after FORM are read."
  (or (and (consp form) (eq (car form) 'in-package) (consp (cdr form))
           (typep (cadr form) '(or string symbol character))
           (find-package (cadr form)))
      *package*))

(defun begin-of-form (code start)
  "Returns the beginning of the first form at or after START, after blanks and comments."
  (loop (let ((at (position-if-not (lambda (c) (member c '(#\Space #\Newline #\Return #\Tab #\Page))) code :start start)))
          (if (and at (char= (char code at) #\;))
              (setf start (or (position #\Newline code :start at) (length code)))
              (return (or at (length code)))))))

(defun place (code at)
  (let ((newline (position #\Newline code :end at :from-end t)))
    (format nil "line ~d, column ~d" (1+ (count #\Newline code :end at)) (- at (or newline -1)))))

(defun plain-message (condition)
  "Omits the stream, which means nothing to readers."
  (if (typep condition 'simple-condition)
      (apply #'format nil (simple-condition-format-control condition) (simple-condition-format-arguments condition))
      (message condition)))

(defun note-problem (condition code in begin)
  "Keeps the position of CONDITION and, if the reader signalled it, its message in terms of CODE."
  (let ((at (min (length code) (max begin (1- (file-position in))))))
    (setf *problem*
          (append (list :condition condition :at at)
                  (when (and (typep condition 'stream-error) (eq (stream-error-stream condition) in))
                    (list :message (if (typep condition 'end-of-file)
                                       (format nil "end of file: the form that begins at ~a is not closed" (place code begin))
                                       (format nil "~a (at ~a)" (plain-message condition) (place code at)))
                          :frame (frame-text (list 'read (subseq code begin (min (length code) (+ begin 40)))))))))))

(defstruct unit form start end package)

(defun read-each (function code &optional (start 0))
  "Calls FUNCTION with each form of CODE from START on, as a unit."
  (let ((*read-eval* nil)
        (*package* *package*)
        (in (make-string-input-stream code))
        (end (list nil)))
    (file-position in start)
    (loop for begin = (begin-of-form code (file-position in))
          for form = (handler-bind ((error (lambda (e) (note-problem e code in begin)))) (read in nil end))
          until (eq form end)
          do (funcall function (make-unit :form form :start begin :end (file-position in) :package *package*))
             (setf *package* (next-package form)))))

(defun read-units (code &optional (start 0))
  (let ((units '()))
    (read-each (lambda (unit) (push unit units)) code start)
    (nreverse units)))

(defun read-user-units (code)
  "Like READ-UNITS, but drops a readtable whose macros fail, because code to repair it could not be read."
  (let ((sound nil))
    (unwind-protect
         (handler-bind (((or reader-error end-of-file) (lambda (e) (declare (ignore e)) (setf sound t))))
           (prog1 (read-units code) (setf sound t)))
      (unless sound (setf *readtable* (copy-readtable nil))))))

;;; One call. These variables have all of its state.

(defvar *main* nil "The thread that evaluates.")
(defvar *interruptible* nil "True while user code runs.")
(defvar *interrupts* 0 "Interrupts that have come, ever.")
(defvar *limit* 0 "Characters of each text.")
(defvar *warnings*)
(defvar *notes*)
(defvar *failure*)
(defvar *signalled* '() "Errors that no handler took, the last one first.")
(defvar *problem* nil "What is known of the condition that ended reading, a plist.")
(defvar *user-package* (find-package "COMMON-LISP-USER"))
(defvar *user-readtable* (copy-readtable nil))

(define-condition exit-refused (error) ()
  (:report "this code asked Lisp to exit; the session goes on, end it with reset-session"))

(defun type-name (condition) (symbol-name (type-of condition)))

(defmacro with-user-printing (() &body body)
  `(let ((*print-readably* nil) (*print-escape* t) (*print-base* 10) (*print-radix* nil)
         (*print-case* :upcase) (*print-gensym* t) (*print-array* t) (*print-lines* nil)
         (*print-length* 100) (*print-level* 10) (*print-circle* t) (*print-pretty* t)
         (*print-right-margin* nil))
     ,@body))

(defun shown (printer &optional (limit *limit*))
  "Returns the first LIMIT characters that PRINTER, a function of a stream, writes, and the number of further ones."
  (let* ((sink (make-string-output-stream))
         (stream (make-instance 'capture :sink sink :space-left limit)))
    (with-user-printing () (funcall printer stream))
    (list :text (get-output-stream-string sink) :dropped (dropped stream))))

(defun problem-of (condition key)
  (when (eq condition (getf *problem* :condition)) (getf *problem* key)))

(defun cut-text (shown)
  "Returns the result of SHOWN, with the number of missing characters."
  (if (plusp (getf shown :dropped))
      (format nil "~a… [~:d more characters]" (getf shown :text) (getf shown :dropped))
      (getf shown :text)))

(defun message (condition &optional (limit (min *limit* 4000)))
  (or (problem-of condition :message)
      (handler-case
          (cut-text (shown (lambda (out) (let ((*print-escape* nil)) (princ condition out))) limit))
        (serious-condition () "(its message can't be printed)"))))

;;; Failures

(defparameter *frame-limit* 100)

(defun frame-text (frame)
  (handler-case
      (getf (shown (lambda (out)
                     (let ((*print-length* 8) (*print-level* 4) (*print-pretty* nil))
                       (prin1 frame out)))
                   300)
            :text)
    (serious-condition () "(a frame that can't be printed)")))

(defparameter *signalling-functions*
  '(error cerror signal break invoke-debugger sb-debug::%break sb-debug::run-hook sb-kernel:internal-error
    sb-sys:invoke-interruption on-debugger fail user-frames))

(defun signalling-frame-p (frame)
  (or (member (car frame) *signalling-functions*)
      (and (stringp (car frame)) (eql 0 (search "foreign function" (car frame))))))

(defun driver-frame-p (frame)
  (labels ((ours-p (name)
             (typecase name
               (cons (some #'ours-p name))
               (symbol (eq (symbol-package name) (symbol-package 'driver-frame-p))))))
    (ours-p (let ((name (car frame))) (if (consp name) (ignore-errors (copy-list name)) name)))))

(defun internal-frame-p (frame)
  "A frame's name is a symbol, or a list such as (FLET NAME :IN FUNCTION)."
  (let* ((name (car frame))
         (function (if (consp name) (getf (member :in name) :in) name)))
    (and (symbolp function)
         (member (symbol-package function)
                 (load-time-value (mapcar #'find-package '("SB-IMPL" "SB-INT" "SB-KERNEL" "SB-VM" "SB-UNIX" "SB-C" "SB-PCL")))))))

(defun user-frames ()
  "Returns the stack between the signal and the driver, without SBCL's internals, as text."
  (let* ((frames (sb-debug:list-backtrace :count 400))
         (signal (position-if #'signalling-frame-p frames :from-end t :end (min 16 (length frames))))
         (frames (if signal (nthcdr (1+ signal) frames) frames))
         (end (or (position-if #'driver-frame-p frames) (length frames))))
    (setf frames (remove-if #'internal-frame-p (subseq frames 0 end)))
    (map 'vector #'frame-text (subseq frames 0 (min *frame-limit* (length frames))))))

(defun fail (condition)
  (setf *failure* (list :type (type-name condition) :message (message condition)
                        :backtrace (let ((frame (problem-of condition :frame)))
                                     (if frame (vector frame) (or (ignore-errors (user-frames)) (vector))))))
  (throw 'stopped :error))

(defun on-debugger (condition hook)
  (declare (ignore hook))
  (let ((sb-ext:*invoke-debugger-hook* #'on-debugger))
    (cond ((not (eq sb-thread:*current-thread* *main*)) (thread-failed condition))
          (*interruptible* (fail condition))
          (t (throw 'idle nil)))))

(defun thread-failed (condition)
  (ignore-errors
   (format *err* "~&[thread ~a ended: ~a: ~a]~%" (sb-thread:thread-name sb-thread:*current-thread*)
           (type-name condition) (message condition 1000)))
  (sb-thread:abort-thread))

(defun refuse-exit (function &rest arguments)
  (declare (ignore function arguments))
  (error 'exit-refused))

;;; The heap. A collection copies live objects, so it fails fatally if more than half of the heap is live: code that
;;; comes near that gets an error in time.

(define-condition heap-exhausted-error (sb-kernel::heap-exhausted-error) ()
  (:report (lambda (condition out)
             (declare (ignore condition))
             (format out "Heap exhausted: ~:d of ~:d bytes are in use, and a collection needs as much again."
                     (sb-kernel:dynamic-usage) (sb-ext:dynamic-space-size)))))

(defun heap-full-p ()
  (> (* 100 (sb-kernel:dynamic-usage)) (* 42 (sb-ext:dynamic-space-size))))

(defun heap-full ()
  "Signals past the handler that SBCL puts around its hooks."
  (let ((sb-kernel:*handler-clusters* (cdr sb-kernel:*handler-clusters*)))
    (error 'heap-exhausted-error)))

(defun guard-heap ()
  "Runs after each collection: in the thread that made it necessary, or in SBCL's finalizer."
  (when (heap-full-p)
    (cond ((eq sb-thread:*current-thread* sb-impl::*finalizer-thread*)
           (sb-thread:interrupt-thread *main* (lambda ()
                                                (when (and *interruptible* (heap-full-p))
                                                  (error 'heap-exhausted-error)))))
          ((or *interruptible* (not (eq sb-thread:*current-thread* *main*)))
           (heap-full)))))

(defun tidy-heap ()
  "Collects the garbage of an evaluation that filled the heap."
  (when (heap-full-p) (sb-ext:gc :full t)))

;;; Warnings and notes are kept, up to a readable number.

(defparameter *warning-limit* 200)
(defparameter *signalled-limit* 20)

(defun note-warning (warning)
  (when (eq sb-thread:*current-thread* *main*)
    (when (< (length *warnings*) *warning-limit*)
      (vector-push-extend (list :type (type-name warning) :message (message warning)
                                :style (typep warning 'style-warning))
                          *warnings*))
    (let ((restart (find-restart 'muffle-warning warning)))
      (when restart (invoke-restart restart)))))

(defun note-note (note)
  (when (and (eq sb-thread:*current-thread* *main*) (< (length *notes*) *warning-limit*))
    (vector-push-extend (cut-text (shown (lambda (out)
                                           (let ((*print-escape* nil) (*print-circle* nil)) (princ note out)))
                                         4000))
                        *notes*))
  (muffle-warning note))

(defun note-signalled (condition)
  "Keeps an error that no handler took. If ERROR signalled it, it ends the evaluation; after SIGNAL the code continues."
  (when (and (eq sb-thread:*current-thread* *main*) *interruptible* (< (length *signalled*) *signalled-limit*))
    (push condition *signalled*)))

(defun report-signalled ()
  "Warns of the errors that NOTE-SIGNALLED has kept, while a report function can still be interrupted."
  (dolist (condition (reverse *signalled*))
    (when (< (length *warnings*) *warning-limit*)
      (vector-push-extend (list :type (type-name condition)
                                :message (format nil "~a (it was signalled and no handler took it; the code went on)" (message condition)))
                          *warnings*))))

(defun call-user (function)
  "Calls FUNCTION with nothing around it that user code could wait for or get lost in."
  (let ((*package* *package*)
        (*read-base* 10)
        (*read-suppress* nil)
        (sb-ext:*invoke-debugger-hook* #'on-debugger)
        (*debugger-hook* nil)
        (*standard-output* *out*)
        (*error-output* *err*)
        (*trace-output* *err*)
        (*standard-input* *nothing*)
        (*terminal-io* (make-two-way-stream *nothing* *out*))
        (*query-io* (make-two-way-stream *nothing* (make-broadcast-stream))) ; nobody reads questions
        (*debug-io* (make-two-way-stream *nothing* (make-broadcast-stream))))
    (handler-bind ((warning #'note-warning)
                   (sb-ext:compiler-note #'note-note)
                   (error #'note-signalled))
      (with-compilation-unit (:override t)
        (catch 'stopped
          (unwind-protect (with-simple-restart (abort "End this evaluation.")
                            (setf *interruptible* t)
                            (funcall function)
                            (report-signalled)
                            (throw 'stopped :done))
            (setf *interruptible* nil))
          (setf *failure* (list :type "ABORT" :message "the restart ABORT ended this evaluation" :backtrace (vector)))
          :error)))))

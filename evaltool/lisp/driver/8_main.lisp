;;; The loop

(defun operation (name)
  (ecase name
    (:evaluate #'do-evaluate) (:compile #'do-compile) (:syntax #'do-syntax) (:expand #'do-expand)
    (:describe #'do-describe) (:apropos #'do-apropos) (:definitions #'do-definitions)))

(defun await-interrupts (count)
  "Waits for interrupts of earlier calls, which must not end this one."
  (loop repeat 100 while (< *interrupts* count) do (sleep 0.002)))

(defun flush-foreign-output ()
  "Flushes the buffers of SBCL itself and of C code."
  (ignore-errors
   (finish-output sb-sys:*stdout*)
   (finish-output sb-sys:*stderr*)
   (sb-alien:alien-funcall (sb-alien:extern-alien "fflush" (function sb-alien:int sb-sys:system-area-pointer))
                           (sb-sys:int-sap 0))))

(defun perform (request package)
  "Handles REQUEST and answers it."
  (let* ((*limit* (getf request :limit)) (*failure* nil) (*signalled* '()) (*problem* nil) (*values* nil) (*more-values* 0) (*timing* nil) (*definitions* '()) (result '())
         (*warnings* (make-array 0 :adjustable t :fill-pointer t))
         (*notes* (make-array 0 :adjustable t :fill-pointer t))
         (*readtable* *user-readtable*)
         (outcome (let ((*package* package))
                    (call-user (lambda ()
                                 (unwind-protect
                                      (setf result (funcall (operation (getf request :op)) request))
                                   (setf *user-readtable* *readtable*)
                                   (unless (getf request :package) (setf *user-package* *package*))))))))
    (tidy-heap)
    (flush-foreign-output)
    (answer (append (list :id (getf request :id) :outcome (string-downcase outcome)
                          :out-dropped (end-capture *out*)
                          :err-dropped (end-capture *err*)
                          :package (package-name (live-package)) :error *failure*
                          :warnings *warnings* :notes *notes* :timing *timing*
                          :definitions (first-entries (reverse *definitions*)) :values *values* :more-values *more-values*)
                    result))))

(defun serve (request)
  (let* ((name (getf request :package))
         (package (if name (named-package name) (live-package))))
    (await-interrupts (getf request :interrupts))
    (begin-capture *out* (getf request :limit))
    (begin-capture *err* (getf request :limit))
    (if package
        (perform request package)
        (progn (end-capture *out*)
               (end-capture *err*)
               (answer (list :id (getf request :id) :outcome "no_package"))))))

(defun answer-lost (request)
  "The code found a way around CALL-USER."
  (answer (list :id (getf request :id) :outcome "error"
                :error (list :type "CONTROL-ERROR" :message "the evaluation was left in a way that gives no values; if that happens again, reset-session starts Lisp again"))))

(defun interrupted ()
  (incf *interrupts*)
  (when *interruptible* (throw 'stopped :interrupted)))

(defun on-sigint (signal info context)
  (declare (ignore signal info context))
  (sb-thread:interrupt-thread *main* #'interrupted))

(defun close-input ()
  "The driver's source may have come through descriptor 0."
  (sb-unix:unix-close 0)
  (sb-unix:unix-open "/dev/null" sb-unix:o_rdonly 0))

(defun connect ()
  "Prepares each start: the descriptors, the thread, the heap's size."
  (close-input)
  (setf *main* sb-thread:*current-thread*
        *process* (sb-unix:unix-getpid)
        *first-packages* (list-all-packages)
        *answers* (sb-sys:make-fd-stream 4 :output t :element-type '(unsigned-byte 8) :buffering :full)
        *out* (descriptor-stream 1)
        *err* (descriptor-stream 2)
        *standard-output* *out* *error-output* *err* *trace-output* *err*
        *standard-input* *nothing*
        sb-ext:*posix-argv* (list "sbcl")
        sb-ext:*invoke-debugger-hook* #'on-debugger
        *package* (find-package "COMMON-LISP-USER")
        (sb-ext:bytes-consed-between-gcs) (floor (sb-ext:dynamic-space-size) 25))
  (sb-sys:enable-interrupt sb-unix:sigint #'on-sigint))

(defun change-lisp ()
  "The settings that a saved core keeps."
  (setf sb-ext:*evaluator-mode* :compile)
  (pushnew 'guard-heap sb-ext:*after-gc-hooks*)
  (sb-int:encapsulate 'sb-ext:exit 'wisbox #'refuse-exit))

(defun main ()
  (change-lisp)
  (connect)
  (answer (list :id "ready" :outcome "done"))
  (loop
    (let ((request nil))
      (catch 'idle
        (sb-sys:without-interrupts (setf request (read-request))))
      (when request
        (catch 'idle
          (serve request)
          (setf request nil)))
      (when request
        (handler-case (answer-lost request)
          (serious-condition () (end-of-session)))))))

;;; A core with the driver, and with everything that its first calls would compile.

(defun rehearse ()
  (let* ((null (sb-unix:unix-open "/dev/null" sb-unix:o_wronly 0))
         (*answers* (sb-sys:make-fd-stream null :output t :element-type '(unsigned-byte 8) :buffering :full))
         (*out* (descriptor-stream null))
         (*err* (descriptor-stream null))
         (*main* sb-thread:*current-thread*)
         (*process* (sb-unix:unix-getpid)))
    (dolist (code '("(+ 1 2)" "(print '(a . \"b\")) (values 1 2.5)" "(warn \"x\") (error \"y\")" "(car 1)" "(1 2" "(list 1) \";\"" "(defun f (x) x) (f 1)"))
      (serve (list :op :evaluate :id "" :interrupts 0 :limit 1000 :code code)))
    (fmakunbound 'cl-user::f)
    (mapc (lambda (name) (unintern (find-symbol name "COMMON-LISP-USER") "COMMON-LISP-USER")) '("A" "F" "X"))
    (sb-unix:unix-close null)))

(defun save (path)
  "Ends Lisp, with code 1 if the core at PATH could not be made."
  (rehearse)
  (handler-case (progn (change-lisp)
                       (sb-ext:save-lisp-and-die path :toplevel #'main))
    (error (problem)
      (format *error-output* "save the core: ~a~%" problem)
      (finish-output *error-output*)
      (sb-sys:os-exit 1 :abort t))))

(sb-ext:lock-package "WISBOX.DRIVER")
(in-package "COMMON-LISP-USER")

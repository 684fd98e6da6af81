;;;; The Lisp half of package lisp: it reads requests at descriptor 3, evaluates,
;;;; and answers at descriptor 4. It runs as a program like any other and shares
;;;; its process with the code that it evaluates: it keeps that code from ending or
;;;; confusing the session by accident, and the Go half trusts nothing that it says.
;;;;
;;;; A request is a plist as text, an answer a JSON object; both follow their length
;;;; in bytes (4, big-endian). A call's output goes through descriptors 1 and 2,
;;;; before its answer.

(defpackage "WISBOX.DRIVER"
  (:use "COMMON-LISP")
  (:export "MAIN"))

(in-package "WISBOX.DRIVER")

;;; Answers: T is true, NIL is left out, a vector is a list, a plist an object.

(defun write-json-string (string out)
  (write-char #\" out)
  (loop for c across string
        for code = (char-code c)
        do (cond ((member c '(#\" #\\)) (write-char #\\ out) (write-char c out))
                 ((< code 32) (format out "\\u~4,'0x" code))
                 ((<= #xd800 code #xdfff) (write-char (code-char #xfffd) out))
                 (t (write-char c out))))
  (write-char #\" out))

(defun write-json-object (plist out)
  (write-char #\{ out)
  (loop with comma = nil
        for (key value) on plist by #'cddr
        when value
          do (when comma (write-char #\, out))
             (setf comma t)
             (write-json-string (string-downcase (substitute #\_ #\- (symbol-name key))) out)
             (write-char #\: out)
             (write-json value out))
  (write-char #\} out))

(defun write-json (value out)
  (etypecase value
    ((eql t) (write-string "true" out))
    (string (write-json-string value out))
    (integer (format out "~d" value))
    (vector (write-char #\[ out)
            (loop for item across value
                  for comma = nil then t
                  do (when comma (write-char #\, out))
                     (write-json item out))
            (write-char #\] out))
    (list (write-json-object value out))))

(defvar *answers*)

(defun end-of-session () (sb-sys:os-exit 0 :abort t))

(defun read-octets (size)
  "SIZE bytes of descriptor 3. A stream would poll, which it must not without interrupts."
  (let ((octets (make-array size :element-type '(unsigned-byte 8))) (start 0))
    (sb-sys:with-pinned-objects (octets)
      (loop while (< start size)
            do (multiple-value-bind (count errno)
                   (sb-unix:unix-read 3 (sb-sys:sap+ (sb-sys:vector-sap octets) start) (- size start))
                 (cond ((and count (plusp count)) (incf start count))
                       ((and (not count) (= errno sb-unix:eintr)))
                       (t (end-of-session))))))
    octets))

(defun read-request ()
  (let* ((size (reduce (lambda (high low) (+ (ash high 8) low)) (read-octets 4)))
         (octets (read-octets size)))
    (with-standard-io-syntax
      (let ((*read-eval* nil)
            (*package* (find-package "KEYWORD")))
        (read-from-string (sb-ext:octets-to-string octets :external-format :utf-8))))))

(defun answer (plist)
  (let* ((text (with-standard-io-syntax
                 (with-output-to-string (out) (write-json plist out))))
         (octets (sb-ext:string-to-octets text :external-format :utf-8)))
    (loop for shift from 24 downto 0 by 8
          do (write-byte (ldb (byte 8 shift) (length octets)) *answers*))
    (write-sequence octets *answers*)
    (finish-output *answers*)))

;;; Output: a stream that keeps the first characters and counts the others. SINK is
;;; where they go: a descriptor's stream, or a string for what is printed for the
;;; answer.

(defclass capture (sb-gray:fundamental-character-output-stream)
  ((sink :initarg :sink :accessor sink)
   (space-left :initarg :space-left :initform 0 :accessor space-left)
   (dropped :initform 0 :accessor dropped)
   (column :initform 0 :accessor column)
   (lock :initform (sb-thread:make-mutex :name "capture") :reader lock)))

(defun capture (stream string start end)
  (sb-thread:with-recursive-lock ((lock stream))
    (let* ((size (- end start))
           (kept (min size (space-left stream)))
           (newline (position #\Newline string :start start :end end :from-end t)))
      (setf (column stream) (if newline (- end newline 1) (+ (column stream) size)))
      (incf (dropped stream) (- size kept))
      (when (plusp kept)
        (decf (space-left stream) kept)
        (write-string string (sink stream) :start start :end (+ start kept))
        (when newline (finish-output (sink stream)))))))

(defmethod sb-gray:stream-write-char ((stream capture) char)
  (let ((string (make-string 1 :initial-element char)))
    (declare (dynamic-extent string))
    (capture stream string 0 1))
  char)

(defmethod sb-gray:stream-write-string ((stream capture) string &optional (start 0) end)
  (capture stream string start (or end (length string)))
  string)

(defmethod sb-gray:stream-line-column ((stream capture)) (column stream))

(defmethod sb-gray:stream-finish-output ((stream capture))
  (sb-thread:with-recursive-lock ((lock stream)) (finish-output (sink stream)))
  nil)

(defmethod sb-gray:stream-force-output ((stream capture)) (sb-gray:stream-finish-output stream))

(defmethod print-object ((stream capture) out)
  (print-unreadable-object (stream out) (write-string "session output" out)))

(defmethod close ((stream capture) &key abort) (declare (ignore abort)) t)

(defun begin-capture (stream size)
  (setf (space-left stream) size (dropped stream) 0 (column stream) 0))

(defun end-capture (stream)
  "Says how many characters were dropped."
  (ignore-errors (finish-output stream))
  (dropped stream))

(defvar *out*)
(defvar *err*)
(defvar *nothing* (make-concatenated-stream))

(defun descriptor-stream (fd)
  (make-instance 'capture :sink (sb-sys:make-fd-stream fd :output t :buffering :full
                                                          :external-format '(:utf-8 :replacement #\?))))

;;; One call. All that belongs to it is in these variables.

(defvar *main* nil "The thread that evaluates.")
(defvar *interruptible* nil "True while user code runs.")
(defvar *interrupts* 0 "Interrupts that have come, ever.")
(defvar *limit* 0 "Characters of each text.")
(defvar *warnings*)
(defvar *notes*)
(defvar *failure*)
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
  "What PRINTER, a function of a stream, writes: its first LIMIT characters and how many more there are."
  (let* ((sink (make-string-output-stream))
         (stream (make-instance 'capture :sink sink :space-left limit)))
    (with-user-printing () (funcall printer stream))
    (list :text (get-output-stream-string sink) :dropped (dropped stream))))

(defun message (condition &optional (limit (min *limit* 4000)))
  (handler-case
      (getf (shown (lambda (out) (let ((*print-escape* nil)) (princ condition out))) limit) :text)
    (serious-condition () "(its message can't be printed)")))

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
  (let ((name (car frame)))
    (and (symbolp name)
         (member (symbol-package name)
                 (load-time-value (mapcar #'find-package '("SB-IMPL" "SB-INT" "SB-KERNEL" "SB-VM" "SB-UNIX")))))))

(defun user-frames ()
  "The stack between the signal and the driver, without SBCL's internals, as text."
  (let* ((frames (sb-debug:list-backtrace :count 400))
         (signal (position-if #'signalling-frame-p frames :from-end t :end (min 16 (length frames))))
         (frames (if signal (nthcdr (1+ signal) frames) frames))
         (end (or (position-if #'driver-frame-p frames) (length frames))))
    (setf frames (remove-if #'internal-frame-p (subseq frames 0 end)))
    (map 'vector #'frame-text (subseq frames 0 (min *frame-limit* (length frames))))))

(defun fail (condition)
  (setf *failure* (list :type (type-name condition) :message (message condition)
                        :backtrace (or (ignore-errors (user-frames)) (vector))))
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

;;; The heap. A collection copies what lives, so it fails for good where more than
;;; half of the heap lives: code that comes near that gets an error in time.

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
  "What an evaluation that filled the heap has left is garbage now."
  (when (heap-full-p) (sb-ext:gc :full t)))

;;; Warnings and notes are kept, at most as many as anybody reads.

(defparameter *warning-limit* 200)

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
    (vector-push-extend (message note) *notes*))
  (muffle-warning note))

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
        (*query-io* (make-two-way-stream *nothing* *out*))
        (*debug-io* (make-two-way-stream *nothing* *out*)))
    (handler-bind ((warning #'note-warning)
                   (sb-ext:compiler-note #'note-note))
      (with-compilation-unit (:override t)
        (catch 'stopped
          (unwind-protect (with-simple-restart (abort "End this evaluation.")
                            (setf *interruptible* t)
                            (funcall function)
                            (throw 'stopped :done))
            (setf *interruptible* nil))
          (setf *failure* (list :type "ABORT" :message "the restart ABORT ended this evaluation" :backtrace (vector)))
          :error)))))

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

;;; Looking at what there is

(defun split-name (name)
  (let ((colon (position #\: name)))
    (if (and colon (plusp colon))
        (values (string-left-trim ":" (subseq name colon)) (named-package (subseq name 0 colon)))
        (values (string-left-trim ":" name) (if colon (find-package "KEYWORD") *package*)))))

(defun named-symbol (text)
  "The symbol that TEXT names, in a list, or NIL."
  (multiple-value-bind (name package) (split-name text)
    (when package
      (loop for spelling in (list name (string-upcase name))
            do (multiple-value-bind (symbol found) (find-symbol spelling package)
                 (when found (return (list symbol))))))))

(defun do-describe (request)
  (let ((symbol (named-symbol (getf request :name))))
    (if symbol
        (shown (lambda (out)
                 (let ((*print-circle* nil)) (describe (car symbol) out))))
        (list :missing t))))

(defun symbol-kinds (symbol)
  (remove nil
          (list (cond ((special-operator-p symbol) "special-operator")
                      ((macro-function symbol) "macro")
                      ((not (fboundp symbol)) nil)
                      ((typep (fdefinition symbol) 'generic-function) "generic-function")
                      (t "function"))
                (cond ((constantp symbol) "constant")
                      ((boundp symbol) "variable"))
                (when (find-class symbol nil) "class"))))

(defun kind-matches-p (wanted kinds)
  (cond ((null wanted) t)
        ((string= wanted "function") (or (member "function" kinds :test #'string=)
                                         (member "generic-function" kinds :test #'string=)))
        (t (member wanted kinds :test #'string=))))

(defun full-name (symbol)
  (with-standard-io-syntax
    (let ((*package* (find-package "KEYWORD"))) (prin1-to-string symbol))))

(defun entry (symbol kinds)
  (list :name (full-name symbol)
        :lambda-list (when (and (fboundp symbol) (not (special-operator-p symbol)))
                       (frame-text (sb-kernel:%fun-lambda-list (or (macro-function symbol) (fdefinition symbol)))))
        :kinds (coerce kinds 'vector)))

(defparameter *entry-limit* 1000)

(defun entries (symbols wanted)
  (let ((found (loop for symbol in symbols
                     for kinds = (symbol-kinds symbol)
                     when (and kinds (kind-matches-p wanted kinds))
                       collect (entry symbol kinds))))
    (setf found (sort found #'string< :key (lambda (entry) (getf entry :name))))
    (list :total (length found)
          :entries (coerce (subseq found 0 (min *entry-limit* (length found))) 'vector))))

(defun do-apropos (request)
  (let ((package (and (getf request :package) *package*))
        (wanted (getf request :type)) (pattern (getf request :pattern)))
    (entries (delete-duplicates
              (delete (find-package "WISBOX.DRIVER")
                      (if package (apropos-list pattern package) (apropos-list pattern))
                      :key #'symbol-package))
             wanted)))

(defvar *first-packages* nil "The packages that were there before any user code.")

(defun user-packages ()
  (cons (find-package "COMMON-LISP-USER") (set-difference (list-all-packages) *first-packages*)))

(defun do-definitions (request)
  (let ((wanted (getf request :type)) (symbols '()))
    (dolist (package (user-packages))
      (do-symbols (symbol package)
        (when (eq (symbol-package symbol) package) (push symbol symbols))))
    (append (unless (equal wanted "package") (entries (delete-duplicates symbols) wanted))
            (list :packages (when (or (null wanted) (string= wanted "package"))
                              (sort (map 'vector #'package-name (cdr (user-packages))) #'string<))))))

;;; The loop

(defun operation (name)
  (ecase name
    (:evaluate #'do-evaluate) (:compile #'do-compile) (:syntax #'do-syntax) (:expand #'do-expand)
    (:describe #'do-describe) (:apropos #'do-apropos) (:definitions #'do-definitions)))

(defun await-interrupts (count)
  "Interrupts that were sent for calls before this one must not end it."
  (loop repeat 100 while (< *interrupts* count) do (sleep 0.002)))

(defun perform (request package)
  "Does REQUEST and answers it."
  (let* ((*limit* (getf request :limit)) (*failure* nil) (*values* nil) (*timing* nil) (*definitions* '()) (result '())
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
    (ignore-errors (finish-output sb-sys:*stdout*) (finish-output sb-sys:*stderr*))
    (answer (append (list :id (getf request :id) :outcome (string-downcase outcome)
                          :out-dropped (end-capture *out*)
                          :err-dropped (end-capture *err*)
                          :package (package-name (live-package)) :error *failure*
                          :warnings *warnings* :notes *notes* :timing *timing*
                          :definitions (coerce (reverse *definitions*) 'vector) :values *values*)
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
                :error (list :type "CONTROL-ERROR" :message "the evaluation was left in a way that gives no values"))))

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

(defun prepare ()
  (close-input)
  (setf *main* sb-thread:*current-thread*
        *first-packages* (list-all-packages)
        *answers* (sb-sys:make-fd-stream 4 :output t :element-type '(unsigned-byte 8) :buffering :full)
        *out* (descriptor-stream 1)
        *err* (descriptor-stream 2)
        *standard-output* *out* *error-output* *err* *trace-output* *err*
        *standard-input* *nothing*
        sb-ext:*posix-argv* (list "sbcl")
        sb-ext:*invoke-debugger-hook* #'on-debugger
        sb-ext:*evaluator-mode* :compile
        *package* (find-package "COMMON-LISP-USER")
        (sb-ext:bytes-consed-between-gcs) (floor (sb-ext:dynamic-space-size) 25))
  (push 'guard-heap sb-ext:*after-gc-hooks*)
  (sb-int:encapsulate 'sb-ext:exit 'wisbox #'refuse-exit)
  (sb-sys:enable-interrupt sb-unix:sigint #'on-sigint))

(defun main ()
  (prepare)
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

(sb-ext:lock-package "WISBOX.DRIVER")
(in-package "COMMON-LISP-USER")

;;;; The Lisp half of package lisp: it reads requests at descriptor 3, evaluates,
;;;; and answers at descriptor 4. It runs like any other program and shares its process with the code that it evaluates:
;;;; it keeps that code from accidentally ending or disturbing the session, and the Go half doesn't trust its answers.
;;;;
;;;; A request is a plist as text, an answer is a JSON object; the length in bytes (4, big-endian) precedes both. A
;;;; call's output goes through descriptors 1 and 2, before its answer.

(defpackage "WISBOX.DRIVER"
  (:use "COMMON-LISP")
  (:export "MAIN" "SAVE"))

(in-package "WISBOX.DRIVER")

;;; Answers: T is true, NIL is omitted, a vector is a list, a plist an object.

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
(defvar *process* nil "The number of the process that answers: a fork of it does not.")

(defun end-of-session () (sb-sys:os-exit 0 :abort t))

(defun read-octets (size)
  "Reads SIZE bytes of descriptor 3. A stream would poll, which isn't allowed without interrupts."
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
  (unless (= *process* (sb-unix:unix-getpid)) (end-of-session))
  (let* ((text (with-standard-io-syntax
                 (with-output-to-string (out) (write-json plist out))))
         (octets (sb-ext:string-to-octets text :external-format :utf-8)))
    (loop for shift from 24 downto 0 by 8
          do (write-byte (ldb (byte 8 shift) (length octets)) *answers*))
    (write-sequence octets *answers*)
    (finish-output *answers*)))

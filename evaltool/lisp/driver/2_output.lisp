;;; Output: a stream that keeps the first characters and counts the others. SINK is their destination: a descriptor's
;;; stream, or a string for text in the answer.

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
  "Reports how many characters were dropped."
  (ignore-errors (finish-output stream))
  (dropped stream))

(defvar *out*)
(defvar *err*)
(defvar *nothing* (make-concatenated-stream))

(defun descriptor-stream (fd)
  (make-instance 'capture :sink (sb-sys:make-fd-stream fd :output t :buffering :full
                                                          :external-format '(:utf-8 :replacement #\?))))

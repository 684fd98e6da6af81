;;; Inspecting definitions

(defun split-name (name)
  (let ((colon (position #\: name)))
    (if (and colon (plusp colon))
        (values (string-left-trim ":" (subseq name colon)) (named-package (subseq name 0 colon)))
        (values (string-left-trim ":" name) (if colon (find-package "KEYWORD") *package*)))))

(defun named-symbol (text)
  "Returns a list of the symbol that TEXT names, or NIL."
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
                      ((or (boundp symbol) (eq (sb-int:info :variable :kind symbol) :special)) "variable"))
                (when (find-class symbol nil) "class"))))

(defun kind-matches-p (wanted kinds)
  (cond ((null wanted) t)
        ((string= wanted "function") (or (member "function" kinds :test #'string=)
                                         (member "generic-function" kinds :test #'string=)))
        (t (member wanted kinds :test #'string=))))

(defun full-name (symbol)
  (with-standard-io-syntax
    (let ((*package* (find-package "KEYWORD"))) (prin1-to-string symbol))))

(defun lambda-list-text (symbol)
  (let ((lambda-list (sb-kernel:%fun-lambda-list (or (macro-function symbol) (fdefinition symbol))))
        (*package* (symbol-package symbol)))
    (if lambda-list
        (getf (shown (lambda (out) (let ((*print-circle* nil) (*print-pretty* nil)) (prin1 lambda-list out))) 300) :text)
        "()")))

(defun entry (symbol kinds)
  (list :name (full-name symbol)
        :lambda-list (when (and (fboundp symbol) (not (special-operator-p symbol))) (lambda-list-text symbol))
        :kinds (coerce kinds 'vector)))

(defparameter *entry-limit* 1000)

(defun first-entries (list)
  (coerce (subseq list 0 (min *entry-limit* (length list))) 'vector))

(defun entries (symbols wanted)
  (let ((found (loop for symbol in symbols
                     for kinds = (symbol-kinds symbol)
                     when (and kinds (kind-matches-p wanted kinds))
                       collect (entry symbol kinds))))
    (setf found (sort found #'string< :key (lambda (entry) (getf entry :name))))
    (list :total (length found)
          :entries (first-entries found))))

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
                              (first-entries (sort (mapcar #'package-name (cdr (user-packages))) #'string<)))))))

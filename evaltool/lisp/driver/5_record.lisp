;;; The record of a session's definitions, for sessions that begin with the same ones.

(defparameter *wrapping-operators* '(progn let let* locally eval-when flet labels macrolet symbol-macrolet))

(defparameter *recorded-operators*
  '(declaim proclaim export unexport import shadow shadowing-import use-package unuse-package rename-package
    delete-package unintern fmakunbound makunbound remove-method)
  "Besides those whose name begins with DEF, which is the custom for defining operators.")

(defun defining-operator-p (operator)
  (let ((name (symbol-name operator)))
    (and (> (length name) 3) (string= "DEF" name :end2 3))))

(defun defined-names (form)
  "Returns a list of the definitions in FORM, which is one or contains some."
  (cond ((not (and (consp form) (symbolp (car form)) (consp (cdr form)))) '())
        ((member (car form) *wrapping-operators*) (mapcan #'defined-names (copy-list (cdr form))))
        ((member (car form) *recorded-operators*) (list (cdr form)))
        ((eq (car form) 'defmethod) (list (method-key form)))
        ((defining-operator-p (car form)) (list (defined-name (cadr form))))))

(defun defined-name (name)
  "(SETF F) names itself, (STRUCTURE OPTION…) begins with its name."
  (if (and (consp name) (not (eq (car name) 'setf))) (car name) name))

(defun definition (unit code)
  "Returns the definition by UNIT of CODE, or NIL."
  (let* ((form (unit-form unit)) (names (defined-names form)))
    (when names
      (list :operator (symbol-name (car form))
            :name (getf (shown (lambda (out) (let ((*print-pretty* nil)) (prin1 (if (cdr names) names (car names)) out))) 4000) :text)
            :package (package-name (unit-package unit)) :source (subseq code (unit-start unit) (unit-end unit))))))

(defun method-key (form)
  "Returns the name, qualifiers and specializers, which identify a method."
  (let ((lambda-list (find-if #'listp (cddr form))))
    (append (list (cadr form))
            (remove-if #'listp (subseq (cddr form) 0 (or (position-if #'listp (cddr form)) 0)))
            (loop for parameter in lambda-list
                  until (member parameter lambda-list-keywords)
                  collect (if (consp parameter) (cadr parameter) t)))))

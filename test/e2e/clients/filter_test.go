package clients

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// filter chooses objects as selectors do.
type filter struct {
	labels string
	// field is the path of a string and the value that it must have.
	field []string
	value string
}

func (f filter) fieldSelector() string {
	if f.field == nil {
		return ""
	}
	return f.field[0] + "." + f.field[1] + "=" + f.value
}

// state of objects: their revisions by key.
type state map[string]string

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

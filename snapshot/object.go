package snapshot

import "strings"

// Object is one version of one object. It is immutable.
type Object struct {
	// Key orders objects as kube-apiserver does: the bytes of "namespace/name", or of the name
	// alone for a cluster-scoped resource.
	Key string
	// Revision is the object's own resourceVersion.
	Revision uint64
	// Bytes is the object as a list holds it.
	Bytes []byte
}

// objectOverhead is what an object costs in memory beside its bytes and key: the struct, its
// slot in the tree and the allocator's rounding. Estimated for the byte bound.
const objectOverhead = 160

func (o *Object) size() int64 { return int64(len(o.Bytes)+len(o.Key)) + objectOverhead }

func objectLess(a, b *Object) bool { return a.Key < b.Key }

// Scope is the key range that a request covers: one namespace, or with the zero value the whole
// resource.
type Scope struct {
	Namespace string
}

// prefix is what every key of the scope begins with.
func (s Scope) prefix() string {
	if s.Namespace == "" {
		return ""
	}
	return s.Namespace + "/"
}

// end is the first key after the scope, or "" if the scope has no end.
func (s Scope) end() string {
	if s.Namespace == "" {
		return ""
	}
	return s.Namespace + "0" // '0' follows '/'
}

// joinKey makes an object's key from its metadata.
func joinKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return strings.Join([]string{namespace, name}, "/")
}

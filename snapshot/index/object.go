package index

import (
	"hash/maphash"
	"strings"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Object is one version of one object. It is immutable.
type Object struct {
	// Key orders objects as kube-apiserver does: the bytes of "namespace/name", or of the name
	// alone for a cluster-scoped resource.
	Key string
	// Revision is the object's own resourceVersion.
	Revision uint64
	// Bytes is the object as a list holds it.
	Bytes []byte

	// Number identifies this version of this object within the process; 0 if it has none.
	Number uint64
	// Mark is a hash of the key, by which lists are cut into segments.
	Mark uint32

	// Labels and Fields are what selectors look at. Fields has the values of the fields of
	// Envelope.Paths, in their order.
	Labels wire.Labels
	Fields []string
}

// ObjectNumberBits leaves room for more versions of objects in one collection than any will see:
// ten thousand a second for three years.
const ObjectNumberBits = 40

// NewObject returns a version of an object. Number is its alone, or 0.
func NewObject(number uint64, key string, revision uint64, bytes []byte) *Object {
	return &Object{Key: key, Revision: revision, Bytes: bytes, Number: number, Mark: markOf(key)}
}

// marks differ between processes: a caller who knew them could choose names for which lists are cut
// badly.
var marks = maphash.MakeSeed()

func markOf(key string) uint32 { return uint32(maphash.String(marks, key)) } // #nosec G115 -- half of it is enough

const (
	// ObjectOverhead is what an object costs in memory beside its bytes and key: the struct, its
	// slots in the trees and the allocator's rounding. Estimated for the byte bound, with a share
	// of its labels, most of which are other objects' too.
	ObjectOverhead = 290
	// fieldOverhead is what the value of a selectable field costs beside its text.
	fieldOverhead = 24
)

// Size is how many bytes of memory the object takes, about.
func (o *Object) Size() int64 {
	size := len(o.Bytes) + len(o.Key) + ObjectOverhead + o.Labels.Size()
	for _, value := range o.Fields {
		size += len(value) + fieldOverhead
	}
	return int64(size)
}

func objectLess(a, b *Object) bool { return a.Key < b.Key }

// Scope is the key range that a request covers: one namespace, or with the zero value the whole
// resource.
type Scope struct {
	Namespace string
}

// Prefix is what every key of the scope begins with.
func (s Scope) Prefix() string {
	if s.Namespace == "" {
		return ""
	}
	return s.Namespace + "/"
}

// End is the first key after the scope, or "" if the scope has no end.
func (s Scope) End() string {
	if s.Namespace == "" {
		return ""
	}
	return s.Namespace + "0" // '0' follows '/'
}

// JoinKey makes an object's key from its metadata.
func JoinKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return strings.Join([]string{namespace, name}, "/")
}

// SplitKey is the opposite. Neither part can hold a slash.
func SplitKey(key string) (namespace, name string) {
	namespace, name, found := strings.Cut(key, "/")
	if !found {
		return "", key
	}
	return namespace, name
}

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
	// Bytes is the object's text, as a list holds it.
	Bytes []byte

	// Number identifies this version of this object within the process. It is 0 for the last state of a deleted object,
	// which is in no tree.
	Number uint64
	// KeyHash is a hash of the key, by which lists are cut into compressed segments.
	KeyHash uint32

	// Labels and Fields are read by selectors. Fields has the values of the fields in Envelope.Paths, in their order.
	Labels wire.Labels
	Fields []string
}

// ObjectNumberBits leaves room for more versions of objects in one collection than any will see:
// ten thousand a second for three years.
const ObjectNumberBits = 40

// NewObject returns a version of an object. The number must be unique, or 0 for a deleted object.
func NewObject(number uint64, key string, revision uint64, bytes []byte) *Object {
	hash := uint32(maphash.String(keySeed, key)) // #nosec G115 -- half of it is enough
	return &Object{Key: key, Revision: revision, Bytes: bytes, Number: number, KeyHash: hash}
}

// keySeed makes hashes of keys differ between processes: a caller who knew them could choose names with which lists
// are cut badly.
var keySeed = maphash.MakeSeed()

const (
	// ObjectOverhead is an estimate of the bytes of memory that an object takes in addition to its bytes and key: the
	// struct, its slots in the trees, the allocator's rounding, and a share of labels that other objects have, too.
	ObjectOverhead = 290
	// fieldOverhead is the number of bytes that the value of a selectable field takes in addition to its text.
	fieldOverhead = 24
)

// Size returns the number of bytes of memory that the object takes, about.
func (o *Object) Size() int64 {
	size := len(o.Bytes) + len(o.Key) + ObjectOverhead + o.Labels.Size()
	for _, value := range o.Fields {
		size += len(value) + fieldOverhead
	}
	return int64(size)
}

// namespace returns the namespace in the key.
func (o *Object) namespace() string {
	namespace, _ := SplitKey(o.Key)
	return namespace
}

// name returns the name in the key.
func (o *Object) name() string {
	_, name := SplitKey(o.Key)
	return name
}

// Scope is the range of keys that a request is about: one namespace, or the whole resource with the zero value.
type Scope struct {
	Namespace string
}

// Prefix returns the text with which every key of the scope begins.
func (s Scope) Prefix() string {
	if s.Namespace == "" {
		return ""
	}
	return s.Namespace + "/"
}

// End returns the lowest key that is above all keys of the scope; "" if the scope has no end.
func (s Scope) End() string {
	if s.Namespace == "" {
		return ""
	}
	return s.Namespace + "0" // '0' follows '/'
}

// JoinKey returns the key of an object with that namespace and name.
func JoinKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return strings.Join([]string{namespace, name}, "/")
}

// SplitKey returns the namespace and name in a key. Neither can hold a slash.
func SplitKey(key string) (namespace, name string) {
	namespace, name, found := strings.Cut(key, "/")
	if !found {
		return "", key
	}
	return namespace, name
}

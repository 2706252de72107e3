package index

import (
	"hash/maphash"
	"strings"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Object is one version of one object. It is not changed once it is in a tree or a Change.
type Object struct {
	// Key orders objects as kube-apiserver does: the bytes of "namespace/name", or of the name alone for a cluster-scoped
	// resource.
	Key string
	// Revision is the object's own resourceVersion.
	Revision uint64
	// Bytes is the object as a list holds it.
	Bytes []byte

	// Number identifies this version of this object within the process. Its low ObjectNumberBits count the versions of objects
	// in the collection, and its high bits are the number of the collection. It is 0 for a deleted object, which is in no tree.
	Number uint64
	// KeyHash is a hash of the key. It decides where lists are split into compressed segments.
	KeyHash uint32

	// Labels and Fields are read by selectors. Fields has the values of the fields in Envelope.Paths, in their order.
	Labels wire.Labels
	Fields []string
}

// ObjectNumberBits is the number of low bits of an Object.Number that count versions. They suffice for ten thousand versions a
// second in one collection for three years. The other 24 bits suffice for 16 million collections.
const ObjectNumberBits = 40

// NewObject returns a version of an object. The number must be unique, or 0 for a deleted object. The caller sets Labels and
// Fields.
func NewObject(number uint64, key string, revision uint64, bytes []byte) *Object {
	hash := uint32(maphash.String(keySeed, key)) // #nosec G115 -- half of the bits are enough
	return &Object{Key: key, Revision: revision, Bytes: bytes, Number: number, KeyHash: hash}
}

// keySeed makes the hashes of keys differ between processes. A client that knew these hashes could choose names for
// which compression is slow.
var keySeed = maphash.MakeSeed()

const (
	// ObjectOverhead is an estimate of the bytes of memory that an object takes in addition to its bytes and key: the
	// struct, its slots in the trees, the allocator's rounding, and its share of labels that several objects have.
	ObjectOverhead = 290
	// fieldOverhead is the number of bytes that the value of a selectable field takes in addition to its text.
	fieldOverhead = 24
)

// Size returns an estimate of the bytes of memory that the object takes.
func (o *Object) Size() int64 {
	size := len(o.Bytes) + len(o.Key) + ObjectOverhead + o.Labels.UnsharedSize()
	for _, value := range o.Fields {
		size += len(value) + fieldOverhead
	}
	return int64(size)
}

// namespace returns the namespace in the key; "" for a cluster-scoped object.
func (o *Object) namespace() string { return o.Key[:max(0, strings.IndexByte(o.Key, '/'))] }

// name returns the name in the key.
func (o *Object) name() string { return o.Key[strings.IndexByte(o.Key, '/')+1:] }

package wire

import (
	"bufio"
	"errors"
	"time"
)

// Encoding splits what the upstream writes into its parts: the bytes are kept, never decoded and
// encoded again. Both encodings refuse bytes that they do not completely understand, with errShape
// or an [InconsistencyError].
type Encoding interface {
	// List takes a whole list apart. The items are parts of body.
	List(body []byte) (List, error)
	// Record reads the bytes of the next event of a watch, using buf's memory.
	Record(in *bufio.Reader, buf []byte) ([]byte, error)
	// Event parses a record. The result does not use the record's memory.
	Event(record []byte) (Event, error)
	// Item reads the metadata of a list's item.
	Item(item []byte) (ObjectMeta, error)
	// Cut returns an object from an event as a list holds it. The result shares the event's memory.
	Cut(form ItemForm, inEvent []byte) ([]byte, error)
	// Revise returns a list's item with another resourceVersion, in three parts. The first and the last one share the
	// item's memory.
	Revise(item []byte, revision uint64) (before, instead, after []byte, err error)
	// Values reads the fields of a list's item, in the order of paths.
	Values(paths *FieldPaths, item []byte) ([]string, error)
	// appendEventHead appends the bytes before a list's item of size bytes in an event. The item's first skip bytes are
	// not sent. eventEnd returns the bytes after the item.
	appendEventHead(dst []byte, kind string, form ItemForm, size int) (out []byte, skip int)
	eventEnd() string
	// shapes returns the ways to write a list.
	shapes() []shape
}

// maxEvent bounds one event. etcd takes requests of 1.5 MiB by default and JSON may be a
// few times longer than what is stored.
const maxEvent = 64 << 20

// ErrEnded means that a stream ended at its timeout, or was cut.
var ErrEnded = errors.New("the watch ended")

// Event is one event of a watch.
type Event struct {
	Kind   string // ADDED, MODIFIED, DELETED, BOOKMARK
	Meta   ObjectMeta
	Object []byte // as received
	// ReadAt is the time at which the event was read.
	ReadAt time.Time
	// Reproducible reports whether [Envelope.AppendEvent] would write this event with the same bytes.
	Reproducible bool
}

// ObjectMeta has the fields of an object that a feed reads.
type ObjectMeta struct {
	APIVersion, Kind string
	Namespace, Name  string
	Revision         uint64
	Labels           Labels
	// EndsInitial reports whether this is the bookmark that ends the initial events of a streaming list.
	EndsInitial bool
	// code and message are read from a Status.
	code    int
	message string
}

// List has the parts of a list of the upstream.
type List struct {
	APIVersion, kind string
	Meta             ListMeta
	Items            [][]byte
	itemsNull        bool
}

// ListMeta has the metadata of a list.
type ListMeta struct {
	Revision uint64
	// Continue is the token for the next page; "" on the last one.
	Continue string
	// Remaining is the number of objects after this page. It is written only if HasRemaining.
	Remaining    int64
	HasRemaining bool
	// Shards is the selector of the shards whose objects are in the list; "" if all are.
	Shards string
}

// offset returns the index in whole at which part begins, a slice of whole. Slicing moves the beginning of a slice, and
// leaves the end of its memory. So the difference of the capacities is the distance by which the beginning has moved.
func offset(whole, part []byte) int { return cap(whole) - cap(part) }

// check returns an error if the event lacks what every event must have.
func (ev Event) check() error {
	switch ev.Kind {
	case Added, Modified, Deleted, Bookmarked:
	default:
		return Inconsistent("an event of type %q", ev.Kind)
	}
	if ev.Meta.Revision == 0 {
		return Inconsistent("an event without resourceVersion")
	}
	return nil
}

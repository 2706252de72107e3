package wire

import (
	"bufio"
	"errors"
	"time"
)

// MaxEvent bounds one event. etcd takes requests of 1.5 MiB by default and JSON may be a
// few times longer than what is stored.
const MaxEvent = 64 << 20

// ErrEnded is a stream that ended as streams do: at its timeout, or cut.
var ErrEnded = errors.New("the watch ended")

// Encoding takes apart what the upstream writes: its bytes are kept, never decoded and encoded
// again. Both encodings refuse with errShape, or poison, what they do not know to the last byte.
type Encoding interface {
	// List takes a whole list apart. The items are parts of body.
	List(body []byte) (List, error)
	// Record reads the next event of a watch, as it stands, using buf's memory.
	Record(in *bufio.Reader, buf []byte) ([]byte, error)
	// Event takes a record apart. What it returns is not in the record's memory.
	Event(record []byte) (Event, error)
	// Item reads the metadata of a list's item.
	Item(item []byte) (ObjectMeta, error)
	// Cut returns the list form of an object from an event, in the event's memory.
	Cut(form ItemForm, inEvent []byte) ([]byte, error)
	// AtRevision returns a list's item with another resourceVersion, in memory of its own.
	AtRevision(item []byte, revision uint64) ([]byte, error)
	// Values reads fields of a list's item.
	Values(paths *FieldPaths, item []byte) ([]string, error)
	// appendEvent appends an event with a list's item, whose form in events is known.
	appendEvent(dst []byte, kind string, form ItemForm, item []byte) []byte
	// shapes are the ways to write a list.
	shapes() []shape
}

// Event is one event of a watch.
type Event struct {
	Kind   string // ADDED, MODIFIED, DELETED, BOOKMARK
	Meta   ObjectMeta
	Object []byte // as received
	Came   time.Time
	// Framed is true if all that is around the object is written as [Frame.AppendEvent] does.
	Framed bool
}

// ObjectMeta is what a feed reads of an object.
type ObjectMeta struct {
	APIVersion, Kind string
	Namespace, Name  string
	Revision         uint64
	Labels           Labels
	// EndsInitial is set on the bookmark that ends the initial events of a streaming list.
	EndsInitial bool
	// code and message are those of a Status.
	code    int
	message string
}

// List is a list of the upstream, taken apart.
type List struct {
	APIVersion, kind string
	Meta             ListMeta
	Items            [][]byte
	itemsNull        bool
}

// ListMeta is what a list says about itself.
type ListMeta struct {
	Revision uint64
	// Continue is the token for the next page, "" on the last one.
	Continue string
	// Remaining is written if HasRemaining.
	Remaining    int64
	HasRemaining bool
}

// check holds an event against what every event has.
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

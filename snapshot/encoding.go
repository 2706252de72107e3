package snapshot

import (
	"bufio"
	"time"
)

// encoding takes apart what the upstream writes: its bytes are kept, never decoded and encoded
// again. Both encodings refuse with errShape, or poison, what they do not know to the last byte.
type encoding interface {
	// list takes a whole list apart. The items are parts of body.
	list(body []byte) (list, error)
	// record reads the next event of a watch, as it stands, using buf's memory.
	record(in *bufio.Reader, buf []byte) ([]byte, error)
	// event takes a record apart. What it returns is not in the record's memory.
	event(record []byte) (event, error)
	// item reads the metadata of a list's item.
	item(item []byte) (objectMeta, error)
	// cut returns the list form of an object from an event, in the event's memory.
	cut(form itemForm, inEvent []byte) ([]byte, error)
	// values reads fields of a list's item.
	values(paths *fieldPaths, item []byte) ([]string, error)
	// shapes are the ways to write a list.
	shapes() []shape
}

// event is one event of a watch.
type event struct {
	kind   string // ADDED, MODIFIED, DELETED, BOOKMARK
	meta   objectMeta
	object []byte // as received
	came   time.Time
}

// objectMeta is what a feed reads of an object.
type objectMeta struct {
	apiVersion, kind string
	namespace, name  string
	revision         uint64
	labels           labelSet
	// endsInitial is set on the bookmark that ends the initial events of a streaming list.
	endsInitial bool
	// code and message are those of a Status.
	code    int
	message string
}

// list is a list of the upstream, taken apart.
type list struct {
	apiVersion, kind string
	meta             ListMeta
	items            [][]byte
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
func (ev event) check() error {
	switch ev.kind {
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
	default:
		return poison("an event of type %q", ev.kind)
	}
	if ev.meta.revision == 0 {
		return poison("an event without resourceVersion")
	}
	return nil
}

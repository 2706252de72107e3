package wire

import (
	"bytes"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types of watch events.
const (
	Added      = "ADDED"
	Modified   = "MODIFIED"
	Deleted    = "DELETED"
	Bookmarked = "BOOKMARK"
	errorType  = "ERROR" // The object is a Status, and the watch ends.
)

// Event is one event of a watch.
type Event struct {
	Type string // Added, Modified, Deleted or Bookmarked
	Meta ObjectMeta
	// Object has the bytes that were received (see [ItemForm]). In protobuf, the object is in its wrapper.
	Object []byte
	// EndsInitial reports whether this is the bookmark that ends the initial events of a streaming list.
	EndsInitial bool
	// ReadAt is the time at which the event was read.
	ReadAt time.Time
	// Reproducible reports whether [Envelope.AppendEvent] would write this event with the same bytes.
	Reproducible bool
}

// ParseEvent parses a record of [Encoding.ReadRecord]. The event does not use the record's memory. The error is an
// [AnswerError] for an ERROR event, and an [InconsistencyError] for a record that is not an event.
func ParseEvent(encoding Encoding, record []byte) (Event, error) {
	ev, err := encoding.parseEvent(record)
	if err != nil {
		return Event{}, Inconsistent("an event cannot be decoded: %v", err)
	}
	switch ev.Type {
	case Added, Modified, Deleted, Bookmarked: // The checks below follow.
	case errorType:
		return Event{}, eventError(ev.Object)
	default:
		return Event{}, Inconsistent("an event of type %q", ev.Type)
	}
	if ev.Meta.Revision == 0 {
		return Event{}, Inconsistent("an event without resourceVersion")
	}
	// The object of a bookmark has only a type and a revision. To the bookmark that ends the initial events, kube-apiserver
	// adds this annotation, always with the value "true" (AnnotateInitialEventsEndBookmark in k8s.io/apiserver, pkg/storage).
	ev.EndsInitial = ev.Type == Bookmarked && bytes.Contains(ev.Object, []byte(metav1.InitialEventsAnnotationKey))
	ev.Object = bytes.Clone(ev.Object)
	return ev, nil
}

// AppendEvent appends an event with the bytes of the upstream. Envelope.ItemForm must be known.
func (e *Envelope) AppendEvent(dst []byte, eventType string, item []byte) []byte {
	dst, skip := e.AppendEventHead(dst, eventType, len(item))
	dst = append(dst, item[skip:]...)
	return append(dst, e.EventEnd()...)
}

// AppendEventHead appends the head of an event with an item of size bytes. The caller must leave out the first skip bytes of
// the item, since the head may have them already. With [Envelope.EventEnd], a caller can write an event without copying the
// item. For example, an event of a pod in JSON:
//
//	head  {"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",
//	item  {"metadata":…}    skip is 1, since the head has the opening brace
//	end   }⏎
func (e *Envelope) AppendEventHead(dst []byte, eventType string, size int) (out []byte, skip int) {
	return e.Encoding.appendEventHead(dst, eventType, e.ItemForm, size)
}

// EventEnd returns the end of an event.
func (e *Envelope) EventEnd() string { return e.Encoding.eventEnd() }

// Package events reads the events of watches, in JSON and in protobuf.
package events

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// Event is an event of a watch.
type Event struct {
	// Frame has the event's bytes as they were sent.
	Frame []byte
	Type  watch.EventType
	// Object has the object's bytes as they were sent.
	Object []byte
	// Meta and Revision are the object's. An ERROR has neither.
	Meta     metav1.ObjectMeta
	Revision uint64
	// EndsInitial marks the bookmark after the initial events.
	EndsInitial bool
}

// Reader reads the events of one watch. At the end of the body it returns io.EOF, or io.ErrUnexpectedEOF within an event.
type Reader struct {
	in       *bufio.Reader
	protobuf bool
}

// NewReader returns a reader of a body with this Content-Type.
func NewReader(body io.Reader, contentType string) *Reader {
	return &Reader{bufio.NewReader(body), strings.HasPrefix(contentType, ask.Protobuf)}
}

// Frame returns the bytes of the next event: a line of JSON, or in protobuf four bytes of length and the message.
func (r *Reader) Frame() ([]byte, error) {
	if !r.protobuf {
		line, err := r.in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return line, err
	}
	var length [4]byte
	if _, err := io.ReadFull(r.in, length[:]); err != nil {
		return nil, err
	}
	frame := slices.Concat(length[:], make([]byte, binary.BigEndian.Uint32(length[:])))
	_, err := io.ReadFull(r.in, frame[4:])
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return frame, err
}

// Next returns the next event.
func (r *Reader) Next() (Event, error) {
	frame, err := r.Frame()
	if err != nil {
		return Event{}, err
	}
	var w metav1.WatchEvent
	if r.protobuf {
		err = w.Unmarshal(frame[4:])
	} else {
		err = json.Unmarshal(frame, &w)
	}
	e := Event{Frame: frame, Type: watch.EventType(w.Type), Object: w.Object.Raw}
	if err != nil || e.Type == watch.Error {
		return e, err
	}
	var o metav1.PartialObjectMetadata
	if err := ask.Decode(e.Object, &o); err != nil {
		return e, err
	}
	e.Meta = o.ObjectMeta
	e.EndsInitial = e.Type == watch.Bookmark && e.Meta.Annotations[metav1.InitialEventsAnnotationKey] == "true"
	e.Revision, err = strconv.ParseUint(e.Meta.ResourceVersion, 10, 64)
	return e, err
}

// ProtobufFrame returns an event as it is on the wire in protobuf: four bytes of length (k8s.io/apimachinery,
// util/framer), and the WatchEvent.
func ProtobufFrame(t watch.EventType, object []byte) []byte {
	event, err := (&metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: object}}).Marshal()
	if err != nil {
		panic(err) // its fields are bytes
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...) // #nosec G115 -- of one object
}

// SkipInitial reads the body of a streaming list, in JSON or protobuf, up to the bookmark after the initial events.
func SkipInitial(body io.Reader) error {
	end := []byte(metav1.InitialEventsAnnotationKey)
	buf := make([]byte, 256<<10)
	kept := 0 // the number of bytes at the beginning of buf that are from earlier reads
	for {
		n, err := body.Read(buf[kept:])
		kept += n
		if bytes.Contains(buf[:kept], end) {
			return nil
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		kept = copy(buf, buf[max(0, kept-len(end)):kept]) // the annotation may be split between two reads
	}
}

package crowd

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// event is what a strict watcher was told.
type event struct {
	what     watch.EventType
	key      string
	revision uint64
	version  [sha256.Size]byte
	// end is true of the bookmark that follows the initial events.
	end bool
}

func (e event) String() string {
	if e.what == watch.Bookmark {
		return fmt.Sprintf("a bookmark at %d", e.revision)
	}
	return fmt.Sprintf("%s of %s at %d", e.what, e.key, e.revision)
}

// readEvent reads the next one: a line, or a frame of protobuf behind its length.
func readEvent(in *bufio.Reader, inProtobuf bool) (event, error) {
	var w metav1.WatchEvent
	if inProtobuf {
		var length [4]byte
		if _, err := io.ReadFull(in, length[:]); err != nil {
			return event{}, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(in, frame); err != nil {
			return event{}, fmt.Errorf("in a frame: %w", io.ErrUnexpectedEOF)
		}
		if err := w.Unmarshal(frame); err != nil {
			return event{}, err
		}
	} else {
		line, err := in.ReadBytes('\n')
		if err != nil && len(line) > 0 {
			return event{}, fmt.Errorf("in a line: %w", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return event{}, err
		}
		if err := json.Unmarshal(line, &w); err != nil {
			return event{}, err
		}
	}
	e := event{what: watch.EventType(w.Type)}
	if e.what == watch.Error {
		return e, nil
	}
	m, err := readMeta(w.Object.Raw)
	if err != nil {
		return e, err
	}
	if e.revision, err = strconv.ParseUint(m.ResourceVersion, 10, 64); err != nil {
		return e, err
	}
	if e.what == watch.Bookmark {
		e.end = m.Annotations[metav1.InitialEventsAnnotationKey] == "true"
		return e, nil
	}
	e.key = m.Namespace + "/" + m.Name
	e.version, err = versionOf(m)
	return e, err
}

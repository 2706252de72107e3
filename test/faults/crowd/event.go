package crowd

import (
	"crypto/sha256"
	"encoding/binary"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/oracle"
)

// newEvent is one of which everything counts, the object's revision and version as well.
func newEvent(what watch.EventType, key string, revision uint64, version [sha256.Size]byte) oracle.Event {
	return oracle.Event{Type: what, Key: key, Revision: revision, Object: binary.AppendUvarint(version[:], revision)}
}

// readEvent reads the next one.
func readEvent(in *events.Reader) (oracle.Event, error) {
	w, err := in.Next()
	if err != nil || w.Type == watch.Error || w.Type == watch.Bookmark {
		return oracle.Event{Type: w.Type, Revision: w.Revision, EndsInitial: w.EndsInitial}, err
	}
	version, err := versionOf(w.Meta)
	return newEvent(w.Type, w.Meta.Namespace+"/"+w.Meta.Name, w.Revision, version), err
}

package crowd

import (
	"crypto/sha256"
	"fmt"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/harness/events"
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

// readEvent reads the next one.
func readEvent(in *events.Reader) (event, error) {
	w, err := in.Next()
	e := event{what: w.Type, revision: w.Revision, end: w.EndsInitial}
	if err != nil || e.what == watch.Error || e.what == watch.Bookmark {
		return e, err
	}
	e.key = w.Meta.Namespace + "/" + w.Meta.Name
	e.version, err = versionOf(w.Meta)
	return e, err
}

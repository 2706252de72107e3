package differential

import (
	"bytes"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/oracle"
)

// bookmarkKind is a kind of bookmarks. All of one kind have the same bytes but for the revision.
type bookmarkKind struct {
	resource       string
	representation representation
	endsInitial    bool
	digits         int // of the revision: the lengths in protobuf depend on it
}

// kindOf returns the kind of a bookmark, and its bytes with a masked revision.
func kindOf(w watchRequest, bookmark oracle.Event) (kind bookmarkKind, masked string) {
	revision := strconv.FormatUint(bookmark.Revision, 10)
	mask := bytes.Repeat([]byte("#"), len(revision))
	return bookmarkKind{
		resource:       w.Resource.GroupVersionResource.String(),
		representation: w.eventsIn(),
		endsInitial:    bookmark.EndsInitial,
		digits:         len(revision),
	}, string(bytes.ReplaceAll(bookmark.Object, []byte(revision), mask))
}

// bookmarkRecord has the bytes of each kind of bookmarks that either side has sent. The zero bookmarkRecord is empty. It is safe
// for concurrent use.
type bookmarkRecord struct {
	mu     sync.Mutex
	masked map[bookmarkKind]string // the bytes with masked revisions
	direct map[bookmarkKind]bool   // whether kube-apiserver has sent a bookmark of the kind
}

// compare adds the bookmarks among the events that kube-apiserver (direct) and listproxy (proxy) sent. If one of them differs
// from an earlier bookmark of its kind, from either side, compare returns the difference.
func (b *bookmarkRecord) compare(w watchRequest, direct, proxy []oracle.Event) *difference {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.masked == nil {
		b.masked = map[bookmarkKind]string{}
		b.direct = map[bookmarkKind]bool{}
	}
	for i, e := range slices.Concat(direct, proxy) {
		isDirect := i < len(direct)
		if e.Type != watch.Bookmark {
			continue
		}
		kind, masked := kindOf(w, e)
		if want, ok := b.masked[kind]; ok && want != masked {
			return newDifference(wrongBookmark, "%s", oracle.Difference([]byte(masked), []byte(want)))
		}
		b.masked[kind] = masked
		if isDirect {
			b.direct[kind] = true
		}
	}
	return nil
}

// hasNewKind reports whether the events have a bookmark of a kind that kube-apiserver has not sent yet.
func (b *bookmarkRecord) hasNewKind(w watchRequest, events []oracle.Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(events, func(e oracle.Event) bool {
		if e.Type != watch.Bookmark {
			return false
		}
		kind, _ := kindOf(w, e)
		return !b.direct[kind]
	})
}

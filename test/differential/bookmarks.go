package differential

import (
	"bytes"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/oracle"
)

// bookmarkKind has all that the bytes of a bookmark depend on, except for its revision. So two bookmarks of one kind differ
// only in the revision.
type bookmarkKind struct {
	resource       string
	representation representation
	endsInitial    bool // it ends the initial events, and has an annotation that says so
	digits         int  // the number of digits of the revision: in protobuf, the lengths before the revision depend on it
}

// maskBookmark returns the kind of a bookmark, and its bytes with a "#" for each digit of the revision.
func maskBookmark(w watchRequest, bookmark oracle.Event) (kind bookmarkKind, masked string) {
	revision := strconv.FormatUint(bookmark.Revision, 10)
	mask := bytes.Repeat([]byte("#"), len(revision))
	return bookmarkKind{
		resource:       w.Resource.GroupVersionResource.String(),
		representation: w.eventsIn(),
		endsInitial:    bookmark.EndsInitial,
		digits:         len(revision),
	}, string(bytes.ReplaceAll(bookmark.Object, []byte(revision), mask))
}

// bookmarkRecord has one bookmark of each kind that either side has sent. The zero bookmarkRecord is empty. It is safe for
// concurrent use.
type bookmarkRecord struct {
	mu         sync.Mutex
	masked     map[bookmarkKind]string // the bytes, as maskBookmark returns them
	fromDirect map[bookmarkKind]bool   // the kinds of which kube-apiserver has sent a bookmark
}

// compare adds the bookmarks among the events that kube-apiserver (direct) and listproxy (proxy) sent. If one of them differs
// from an earlier bookmark of its kind, from either side, compare returns the difference.
func (b *bookmarkRecord) compare(w watchRequest, direct, proxy []oracle.Event) *difference {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.masked == nil {
		b.masked = map[bookmarkKind]string{}
		b.fromDirect = map[bookmarkKind]bool{}
	}
	const isDirect = true
	if d := b.addLocked(w, direct, isDirect); d != nil {
		return d
	}
	return b.addLocked(w, proxy, !isDirect)
}

// addLocked adds the bookmarks among the events of one side, until one differs from an earlier bookmark. The caller holds mu.
func (b *bookmarkRecord) addLocked(w watchRequest, events []oracle.Event, isDirect bool) *difference {
	for _, e := range events {
		if e.Type != watch.Bookmark {
			continue
		}
		kind, masked := maskBookmark(w, e)
		if want, ok := b.masked[kind]; ok && want != masked {
			return newDifference(wrongBookmark, "%s", oracle.Difference([]byte(masked), []byte(want)))
		}
		b.masked[kind] = masked
		if isDirect {
			b.fromDirect[kind] = true
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
		kind, _ := maskBookmark(w, e)
		return !b.fromDirect[kind]
	})
}

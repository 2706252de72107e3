package differential

import (
	"bytes"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/oracle"
)

// bookmarkSort is a sort of bookmarks. All of one sort have the same bytes but for the revision.
type bookmarkSort struct {
	resource       string
	representation representation
	endsInitial    bool
	digits         int // of the revision: the lengths in protobuf depend on it
}

// sortOf returns the sort of a bookmark, and its bytes with a masked revision.
func sortOf(w watchRequest, bookmark oracle.Event) (sort bookmarkSort, masked string) {
	revision := strconv.FormatUint(bookmark.Revision, 10)
	mask := bytes.Repeat([]byte("#"), len(revision))
	return bookmarkSort{
		resource:       w.Resource.GroupVersionResource.String(),
		representation: w.eventsIn(),
		endsInitial:    bookmark.EndsInitial,
		digits:         len(revision),
	}, string(bytes.ReplaceAll(bookmark.Object, []byte(revision), mask))
}

// bookmarkRecord has the bytes of each sort of bookmarks that either side has sent. The zero bookmarkRecord is empty. It is safe
// for concurrent use.
type bookmarkRecord struct {
	mu     sync.Mutex
	masked map[bookmarkSort]string // the bytes with masked revisions
	direct map[bookmarkSort]bool   // whether kube-apiserver has sent a bookmark of the sort
}

// compare adds the bookmarks among the events that kube-apiserver (direct) and listproxy (proxy) sent. If one of them differs
// from an earlier bookmark of its sort, from either side, compare returns the difference.
func (b *bookmarkRecord) compare(w watchRequest, direct, proxy []oracle.Event) *difference {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.masked == nil {
		b.masked = map[bookmarkSort]string{}
		b.direct = map[bookmarkSort]bool{}
	}
	for i, e := range slices.Concat(direct, proxy) {
		if e.Type != watch.Bookmark {
			continue
		}
		sort, masked := sortOf(w, e)
		if want, ok := b.masked[sort]; ok && want != masked {
			return newDifference(wrongBookmark, "%s", oracle.Difference([]byte(masked), []byte(want)))
		}
		b.masked[sort] = masked
		if isDirect := i < len(direct); isDirect {
			b.direct[sort] = true
		}
	}
	return nil
}

// hasNewSort reports whether the events have a bookmark of a sort that kube-apiserver has not sent yet.
func (b *bookmarkRecord) hasNewSort(w watchRequest, events []oracle.Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(events, func(e oracle.Event) bool {
		if e.Type != watch.Bookmark {
			return false
		}
		sort, _ := sortOf(w, e)
		return !b.direct[sort]
	})
}

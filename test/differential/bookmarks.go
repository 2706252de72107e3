package differential

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/oracle"
)

// templates has the bytes of the bookmarks that either side has sent, with masked revisions. Its zero value is empty. Safe
// for concurrent use.
type templates struct {
	mu     sync.Mutex
	seen   map[template]string
	served map[template]bool // kube-apiserver has sent a bookmark of this sort
}

// template is a sort of bookmarks, all of which have the same bytes but for the revision.
type template struct {
	resource       string
	representation representation
	end            bool
	digits         int // of the revision: the lengths in protobuf depend on it
}

// templateOf returns the sort of a bookmark, and its bytes with masked revision.
func templateOf(w watchRequest, e oracle.Event) (template, string) {
	revision := strconv.FormatUint(e.Revision, 10)
	masked := bytes.ReplaceAll(e.Object, []byte(revision), []byte(strings.Repeat("#", len(revision))))
	return template{
		resource:       w.Resource.GroupVersionResource.String(),
		representation: w.eventsIn(),
		end:            e.EndsInitial,
		digits:         len(revision),
	}, string(masked)
}

// compare adds the bookmarks among the events that kube-apiserver served and listproxy proxied. If one of them differs from
// an earlier bookmark of its sort, from either side, compare returns the difference.
func (t *templates) compare(w watchRequest, served, proxied []oracle.Event) *difference {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil {
		t.seen, t.served = map[template]string{}, map[template]bool{}
	}
	for i, e := range slices.Concat(served, proxied) {
		if e.Type != watch.Bookmark {
			continue
		}
		key, masked := templateOf(w, e)
		if want, ok := t.seen[key]; ok && want != masked {
			return newDifference(wrongBookmark, "%s", oracle.Difference([]byte(masked), []byte(want)))
		}
		t.seen[key] = masked
		t.served[key] = t.served[key] || i < len(served)
	}
	return nil
}

// hasUnserved reports whether listproxy has sent a bookmark of a sort that kube-apiserver has not sent yet.
func (t *templates) hasUnserved(w watchRequest, proxied []oracle.Event) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(proxied, func(e oracle.Event) bool {
		if e.Type != watch.Bookmark {
			return false
		}
		key, _ := templateOf(w, e)
		return !t.served[key]
	})
}

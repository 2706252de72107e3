package differential

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/oracle"
)

// templates are the bytes of the bookmarks that the API server has sent, but for the revisions. The
// zero templates are none. They are safe for concurrent use.
type templates struct {
	mu   sync.Mutex
	seen map[template]string
}

// template is what the bytes of a bookmark depend on; digits is the length of its revision, which
// lengths in protobuf count.
type template struct {
	resource       string
	representation representation
	end            bool
	digits         int
}

func templateOf(w watchRequest, e oracle.Event) (template, string) {
	revision := strconv.FormatUint(e.Revision, 10)
	masked := bytes.ReplaceAll(e.Object, []byte(revision), []byte(strings.Repeat("#", len(revision))))
	return template{w.Resource.GroupVersionResource.String(), w.told(), e.EndsInitial, len(revision)}, string(masked)
}

// learn notes the bookmarks among what the API server said.
func (t *templates) learn(w watchRequest, said []oracle.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil {
		t.seen = map[template]string{}
	}
	for _, e := range said {
		if e.Type == watch.Bookmark {
			key, masked := templateOf(w, e)
			t.seen[key] = masked
		}
	}
}

// compare holds bookmarks against the API server's; unknown is true if it has sent none yet like one of them.
func (t *templates) compare(w watchRequest, said []oracle.Event) (d *difference, unknown bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range said {
		if e.Type != watch.Bookmark {
			continue
		}
		key, masked := templateOf(w, e)
		switch want, ok := t.seen[key]; {
		case !ok:
			unknown = true
		case want != masked:
			return differs(wrongBookmark, "%s", oracle.Difference(e.Object, []byte(want))), false
		}
	}
	return nil, unknown
}

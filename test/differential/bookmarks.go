package differential

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/oracle"
)

// templates are the bytes of the bookmarks that both sides have sent, but for the revisions. The
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

// differ notes the bookmarks among what a side said, and returns how one is unlike another of its sort,
// whichever side sent that.
func (t *templates) differ(w watchRequest, said []oracle.Event) *difference {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil {
		t.seen = map[template]string{}
	}
	for _, e := range said {
		if e.Type != watch.Bookmark {
			continue
		}
		key, masked := templateOf(w, e)
		if want, ok := t.seen[key]; ok && want != masked {
			return differs(wrongBookmark, "%s", oracle.Difference([]byte(masked), []byte(want)))
		}
		t.seen[key] = masked
	}
	return nil
}

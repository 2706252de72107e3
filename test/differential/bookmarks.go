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

// templates are the bytes of the bookmarks that both sides have sent, but for the revisions. The
// zero templates are none. They are safe for concurrent use.
type templates struct {
	mu     sync.Mutex
	seen   map[template]string
	served map[template]bool // kube-apiserver has sent one
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

// differ notes the bookmarks among what kube-apiserver and listproxy said, and returns how one is unlike another
// of its sort, whichever side sent that.
func (t *templates) differ(w watchRequest, served, proxied []oracle.Event) *difference {
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
			return differs(wrongBookmark, "%s", oracle.Difference([]byte(masked), []byte(want)))
		}
		t.seen[key] = masked
		t.served[key] = t.served[key] || i < len(served)
	}
	return nil
}

// unserved tells whether a bookmark among what listproxy said is of a sort that kube-apiserver has not sent yet.
func (t *templates) unserved(w watchRequest, proxied []oracle.Event) bool {
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

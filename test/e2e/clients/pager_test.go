package clients

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/listproxy/listproxy/test/harness/informers"
)

// walk is one complete list, read in pages.
type walk struct {
	side, client string
	resource     schema.GroupVersionResource
	filter       filter
	asked        metav1.ListOptions
	revision     uint64
	pages        int
	objects      state
}

func (w walk) String() string {
	return fmt.Sprintf("%s, %s, %s, %+v, revision %q %s: %d pages at %d",
		w.resource.Resource, w.side, w.client, w.filter, w.asked.ResourceVersion, w.asked.ResourceVersionMatch, w.pages, w.revision)
}

// walker reads lists with client-go's pager and keeps what it read. Safe for concurrent use.
type walker struct {
	ledgers map[schema.GroupVersionResource]*ledger

	mu      sync.Mutex
	walks   []walk
	expired int
	errs    []error
}

// run walks until ctx ends.
func (k *walker) run(ctx context.Context, s *side, rng *rand.Rand) {
	for ctx.Err() == nil {
		r := changing[rng.IntN(len(changing))]
		listers := s.Listers(r, "")
		clients := slices.Sorted(maps.Keys(listers))
		w := walk{side: s.name, resource: r, client: clients[rng.IntN(len(clients))]}
		all := filters(r)
		chosen := []string{"all", "labels", "fields", "both"}[rng.IntN(4)]
		w.filter = all[chosen] // nothing is chosen where there is none
		w.asked = metav1.ListOptions{LabelSelector: w.filter.labels, FieldSelector: w.filter.fieldSelector()}
		now := strconv.FormatUint(k.ledgers[r].now(), 10)
		switch rng.IntN(5) {
		case 0: // the newest
		case 1:
			w.asked.ResourceVersion = "0"
		case 2:
			w.asked.ResourceVersion, w.asked.ResourceVersionMatch = now, metav1.ResourceVersionMatchNotOlderThan
		case 3:
			w.asked.ResourceVersion, w.asked.ResourceVersionMatch = now, metav1.ResourceVersionMatchExact
		case 4:
			w.asked.ResourceVersion = now // with a limit, exactly this one
		}
		err := w.read(ctx, listers[w.client], int64(1+rng.IntN(12)))
		if ctx.Err() != nil {
			return
		}
		k.note(w, err)
	}
}

func (k *walker) note(w walk, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case apierrors.IsResourceExpired(err):
		k.expired++
	case err != nil:
		k.errs = append(k.errs, fmt.Errorf("%s: %w", w, err))
	default:
		k.walks = append(k.walks, w)
	}
}

// turned reports whether a page has been turned: a list was read that has more than one.
func (k *walker) turned() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.walks, func(w walk) bool { return w.pages > 1 })
}

// read reads all pages and checks what can be seen at once: one revision, and order.
func (w *walk) read(ctx context.Context, l informers.Lister, size int64) error {
	w.objects = state{}
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list, err := l.List(ctx, o)
		if err != nil {
			return nil, err
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			return nil, err
		}
		revision, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
		if err != nil {
			return nil, err
		}
		if w.pages++; w.pages > 1 && revision != w.revision {
			return nil, fmt.Errorf("page %d is of revision %d, the one before of %d", w.pages, revision, w.revision)
		}
		w.revision = revision
		return list, nil
	})
	p.PageSize, p.FullListIfExpired = size, false
	last := ""
	note := func(o runtime.Object) error {
		accessor, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		key := keyOf(accessor)
		if key <= last {
			return fmt.Errorf("%s comes after %s", key, last)
		}
		last = key
		w.objects[key] = accessor.GetResourceVersion()
		return nil
	}
	if w.asked.ResourceVersion == "" {
		// The pager's other way says again on each page which revision it wants, which is refused.
		return p.EachListItem(ctx, w.asked, note)
	}
	list, _, err := p.List(ctx, w.asked)
	if err != nil {
		return err
	}
	return meta.EachListItem(list, note)
}

// check holds all walks against the ledger. It returns how many had more than one page.
func (k *walker) check() (long int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := slices.Clone(k.errs)
	for _, w := range k.walks {
		if w.pages > 1 {
			long++
		}
		asked, _ := strconv.ParseUint(w.asked.ResourceVersion, 10, 64) // none is 0
		exact := asked > 0 && w.asked.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan
		if w.revision < asked || exact && w.revision != asked {
			errs = append(errs, fmt.Errorf("%s: not what was asked for", w))
		}
		want, err := k.ledgers[w.resource].at(w.revision, w.filter)
		if err != nil {
			return long, err
		}
		for key, revision := range want {
			if w.objects[key] != revision {
				errs = append(errs, fmt.Errorf("%s: %s is of revision %q, not %s", w, key, w.objects[key], revision))
			}
		}
		for key := range w.objects {
			if _, ok := want[key]; !ok {
				errs = append(errs, fmt.Errorf("%s: %s is there, and should not be", w, key))
			}
		}
	}
	return long, errors.Join(errs[:min(20, len(errs))]...)
}

package snapshot

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// pageObjects and pageBytes bound one page of a comparison.
	pageObjects = 500
	pageBytes   = 4 << 20
	// The pause after a page is pauseFactor times as long as the upstream worked for it, and at least minPause.
	pauseFactor = 4
	minPause    = 50 * time.Millisecond
	// confirmPause is the time after which a page that differs is compared again. If it has the same objects with other
	// bytes, that time is [Skew].
	confirmPause = 2 * time.Second
)

// The arguments with which compare compares a whole collection.
const (
	firstKey = ""
	allPages = math.MaxInt
)

// errDropped says that the state of a collection was dropped, so that it cannot be compared.
var errDropped = errors.New("the state is not there any more")

// comparedTo says how far a comparison has come.
type comparedTo struct {
	// next is the key from which to go on; "" if nothing is left. After a page that failed it is that page's end, so that a
	// page that the upstream never gives does not keep the others from being compared.
	next string
	// revision is that of the last page; 0 if the collection was dropped before the page was read.
	revision uint64
}

// compare compares up to maxPages pages of a collection with the upstream, byte by byte, each page at the newest
// revision of that moment. The first page begins with the key start. A state that was loaded after changedAt is not
// compared: it came from the API servers as they are since their last change.
//
// compare stops at the first page that fails. The error is a [source.MismatchError] only if the page differed twice; any
// other error means that there is no verdict.
func (c *Collections) compare(r *runningCollection, start string, maxPages int, changedAt time.Time) (comparedTo, error) {
	compared := comparedTo{next: start}
	for range maxPages {
		v := r.view.Load()
		switch {
		case v.unavailable != reason.None:
			return comparedTo{next: compared.next}, errDropped
		case v.loadAskedAt.After(changedAt):
			return comparedTo{revision: v.To}, nil
		}
		begun := time.Now()
		next, err := c.comparePage(r, v.snapshot(), compared.next)
		compared = comparedTo{next: next, revision: v.To}
		if err != nil || compared.next == "" {
			return compared, err
		}
		if !clock.Sleep(c.ctx, max(minPause, pauseFactor*time.Since(begun))) {
			return compared, c.ctx.Err()
		}
	}
	return compared, nil
}

// comparePage compares the page of s that begins with the key start. It returns the key with which the next page begins,
// also after an error.
func (c *Collections) comparePage(r *runningCollection, s Snapshot, start string) (next string, err error) {
	comparison := source.Comparison{Source: c.source(r.key)}
	limit := s.Tree.PageLimit(start, pageObjects, pageBytes)
	next, err = comparison.ComparePage(c.ctx, s.listState(), start, limit)
	mismatch, differs := errors.AsType[*source.MismatchError](err)
	if !differs {
		return next, err
	}
	pause := confirmPause
	if mismatch.SameObjects {
		// A definition may just have changed: listproxy may learn of the change as late as any API server.
		pause = Skew
	}
	if !clock.Sleep(c.ctx, pause) {
		return next, c.ctx.Err()
	}
	_, secondErr := comparison.ComparePage(c.ctx, s.listState(), start, limit)
	if secondErr == nil {
		return next, fmt.Errorf("a mismatch was gone the second time: %s", mismatch.Difference)
	}
	if r.view.Load().epoch != s.epoch {
		return next, errDropped
	}
	return next, secondErr
}

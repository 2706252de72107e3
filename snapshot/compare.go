package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	// pageTries is the number of revisions at which a page is tried. The upstream may have forgotten a revision, or may
	// not have reached it yet.
	pageTries = 3
	// confirmPause is the time after which a page that differs is compared again. If only bytes differ, that time is
	// [Skew].
	confirmPause = 2 * time.Second
)

// errDropped says that the state of a collection was dropped, so that it cannot be compared.
var errDropped = errors.New("the state is not there any more")

// compare compares up to maxPages pages of a collection with the upstream, byte by byte, each page at the newest
// revision of that moment. The first page begins with the key start. A state that was loaded after changedAt is not
// compared.
//
// It stops at the first page that fails. The error is a [source.MismatchError] only if the page differed twice; any other
// error means that there is no verdict. next is the key from which to go on, or "" if nothing is left: after a page that
// failed it is that page's end, so that a page that the upstream never gives does not keep the others from being compared.
// revision is that of the last page, or 0 if the collection was dropped.
func (c *Collections) compare(
	ctx context.Context, r *running, start string, maxPages int, changedAt time.Time,
) (next string, revision uint64, err error) {
	tries := 1
	for pages := 0; pages < maxPages; {
		v := r.view.Load()
		switch {
		case v.unavailable != reason.None:
			return start, 0, errDropped
		case v.loaded.After(changedAt):
			return "", v.To, nil
		}
		revision = v.To
		begun := time.Now()
		next, err = c.comparePage(ctx, r, v.state(), start)
		switch {
		case source.Answered(err, http.StatusGone, http.StatusGatewayTimeout) && tries < pageTries:
			tries++
		case err != nil || next == "":
			return next, revision, err
		default:
			pages++
			tries = 1
			start = next
		}
		if !clock.Sleep(ctx, max(minPause, pauseFactor*time.Since(begun))) {
			return start, revision, context.Cause(ctx)
		}
	}
	return start, revision, nil
}

// comparePage compares the page of s that begins with the key start. It returns the key with which the next page begins,
// also after an error.
func (c *Collections) comparePage(ctx context.Context, r *running, s Snapshot, start string) (next string, err error) {
	comparison := source.Comparison{Source: c.source(r.resource)}
	limit := s.Tree.PageLimit(start, pageObjects, pageBytes)
	next, err = comparison.ComparePage(ctx, s.state(), start, limit)
	mismatch, differs := errors.AsType[*source.MismatchError](err)
	if !differs {
		return next, err
	}
	pause := confirmPause
	if mismatch.SameObjects {
		// A definition may just have changed: listproxy may learn of the change as late as any API server.
		pause = Skew
	}
	if !clock.Sleep(ctx, pause) {
		return next, ctx.Err()
	}
	_, secondErr := comparison.ComparePage(ctx, s.state(), start, limit)
	if secondErr == nil {
		return next, fmt.Errorf("a mismatch was gone the second time: %s", mismatch.Difference)
	}
	if validity := r.Validity(); validity.Unavailable != reason.None || validity.Epoch != s.epoch {
		return next, errDropped
	}
	return next, secondErr
}

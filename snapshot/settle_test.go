package snapshot

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// TestSettle: what is known of the past stays only where a later state can be held against it.
// After a refusal the storage may be another one, which knows nothing of an object that the past
// had, and whose state contradicts it in nothing.
func TestSettle(t *testing.T) {
	for name, tt := range map[string]struct {
		err   error
		why   reason.Reason
		stays bool
	}{
		"the upstream is away":         {errors.New("no route"), reason.Warming, true},
		"the history is gone":          {&wire.AnswerError{Code: http.StatusGone}, reason.Warming, true},
		"it is not permitted":          {&wire.AnswerError{Code: http.StatusForbidden}, reason.NotPermitted, false},
		"the resource is gone":         {&wire.AnswerError{Code: http.StatusNotFound}, reason.Warming, false},
		"a contradiction":              {fmt.Errorf("watch: %w", wire.Inconsistent("twice")), reason.Warming, false},
		"revisions went back":          {wentBackError{highest: 10, now: 9}, reason.Warming, false},
		"the resume point is not told": {errUnproven, reason.Warming, false},
		"a form that is unknown":       {wire.ErrForm, reason.Form, false},
		"no room":                      {errFull, reason.Memory, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Minute, Staleness: time.Minute})
			f := &feed{collection: c, refusals: refusalBackoff()}
			f.settle(tt.err, &wait.Backoff{Steps: 1})
			v := c.view.Load()
			if v.absence != tt.why {
				t.Errorf("there is no newest state because of %q, want %q", v.absence, tt.why)
			}
			if _, absence := v.exact(10); (absence == reason.None) != tt.stays {
				t.Errorf("the past is %q", absence)
			}
		})
	}
}

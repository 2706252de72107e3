package bench

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
)

// writeElsewhere changes a lease, so that the revision moves and no config map does.
func writeElsewhere(ctx context.Context, admin *ask.Client) (uint64, error) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/team-b/leases"
	a, err := admin.Do(ctx, http.MethodPatch, leases+"/elsewhere", kinds.Touch(time.Now().Format(time.RFC3339Nano)))
	if a.Code == http.StatusNotFound {
		a, err = admin.Do(ctx, http.MethodPost, leases, kinds.Kind{APIVersion: "coordination.k8s.io/v1", Name: "Lease"}.Object("elsewhere"))
	}
	if err != nil {
		return 0, err
	}
	return a.Revision()
}

// sample is a series of measurements.
type sample []time.Duration

// report reports the median and the longest, in milliseconds.
func (s sample) report(b *testing.B, what string) {
	b.Helper()
	if len(s) == 0 {
		b.Fatal(errors.New("nothing was measured: " + what))
	}
	slices.Sort(s)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(s[len(s)/2]), what+"-median-ms")
	b.ReportMetric(ms(s[len(s)-1]), what+"-longest-ms")
}

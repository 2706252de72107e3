package faults

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
)

var duration = flag.Duration("faults.duration", 2*time.Second, "how long each fault lasts, where that can be chosen")

const (
	// patience ends a wait for what must come; nothing passes because of it. After a long absence
	// of the API server listproxy's own streams wait up to 45 seconds before they try again.
	patience = 3 * time.Minute
	// requestTimeout is what a client here gives a request. A forward to a server that stands still
	// would take as long as that.
	requestTimeout = 10 * time.Second
	pollEvery      = 20 * time.Millisecond
)

// atOnce is how many tests go test lets run at the same time: cases wait for each other by
// themselves.
const atOnce = 100

// stage is a control plane, started when the first case needs it, and places for cases on it.
type stage struct {
	places chan struct{}
	start  sync.Once
	plane  *controlplane.ControlPlane
	err    error
}

func newStage(places int) *stage { return &stage{places: make(chan struct{}, places)} }

var (
	// quiet is the control plane of cases whose fault is elsewhere.
	quiet = newStage(2)
	// broken is that of cases that break it, one after the other.
	broken = newStage(1)
	// slow and refusing are those of cases that last long, and whose quiet kinds nobody may write.
	slow, refusing = newStage(1), newStage(1)
)

// enter waits for a place, which is the case's until leave is called.
func (s *stage) enter(ctx context.Context) (plane *controlplane.ControlPlane, leave func(), err error) {
	s.places <- struct{}{}
	s.start.Do(func() { s.plane, s.err = controlplane.Start(ctx, controlplane.Options{Log: harness.Log}) })
	return s.plane, func() { <-s.places }, s.err
}

func (s *stage) close() {
	if s.plane != nil {
		s.plane.Stop()
	}
}

// reports of all cases that have ended.
var reports struct {
	sync.Mutex
	all []report
}

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{Parallel: atOnce, SetUp: func(s *harness.Suite) error {
		s.Cleanup(func() error {
			for _, stage := range []*stage{quiet, broken, slow, refusing} {
				stage.close()
			}
			if len(reports.all) > 0 {
				_, _ = fmt.Print(table(reports.all))
			}
			_, _ = fmt.Print(tolls.table())
			return nil
		})
		if *binary != "" {
			return nil
		}
		_, err := harness.BuildProxy(s.Context())
		return err
	}})
}

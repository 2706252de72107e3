package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
)

var duration = flag.Duration("faults.duration", 2*time.Second, "how long each fault lasts, where that can be chosen")

// atOnce is how many tests go test lets run at the same time: cases wait for each other by themselves.
const atOnce = "100"

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
	s.start.Do(func() { s.plane, s.err = controlplane.Start(ctx, controlplane.Options{Log: logLine}) })
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
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	os.Exit(harness.Verdict(func() int {
		defer quiet.close()
		defer broken.close()
		defer slow.close()
		defer refusing.close()
		if *binary == "" {
			if _, err := harness.BuildProxy(context.Background()); err != nil {
				logLine(err.Error())
				return 1
			}
		}
		code := m.Run()
		if len(reports.all) > 0 {
			_, _ = fmt.Print(table(reports.all))
		}
		_, _ = fmt.Print(tolls.table())
		return code
	}()))
}

func logLine(line string) { _, _ = fmt.Fprintln(os.Stderr, line) }

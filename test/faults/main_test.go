package faults

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
)

var duration = flag.Duration("faults.duration", 2*time.Second, "how long each fault lasts, where that can be chosen")

const (
	// patience ends a wait for what must come; nothing passes because of it. After a long unavailable
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
	places  chan struct{}
	options controlplane.Options
	// further is how many more API servers it has, and version theirs, if it is another.
	further int
	version string

	start   sync.Once
	plane   *controlplane.ControlPlane
	servers []*controlplane.APIServer // the further ones
	err     error
}

func newStage(places int) *stage { return &stage{places: make(chan struct{}, places)} }

var (
	// quiet is the control plane of cases whose fault is elsewhere.
	quiet = newStage(2)
	// broken is that of cases that break it, one after the other.
	broken = newStage(1)
	// pair has two API servers more, of which cases break one. Nothing happens to its first one.
	pair = &stage{places: make(chan struct{}, 1), further: 2}
	// upgraded has three more, in an older version. The first one of these stays as it is.
	upgraded = &stage{
		places: make(chan struct{}, 1), further: 3, version: older, options: controlplane.Options{APIServerArgs: newerArgs()},
	}
)

// enter waits for a place, which is the case's until leave is called.
func (s *stage) enter(ctx context.Context) (leave func(), err error) {
	s.places <- struct{}{}
	s.start.Do(func() { s.err = s.run(ctx) })
	return func() { <-s.places }, s.err
}

func (s *stage) run(ctx context.Context) (err error) {
	s.options.Log = harness.Log
	if s.plane, err = controlplane.Start(ctx, s.options); err != nil {
		return err
	}
	for range s.further {
		server, err := s.plane.AddAPIServer(ctx, s.version)
		if err != nil {
			return err
		}
		s.servers = append(s.servers, server)
	}
	return nil
}

func (s *stage) close() {
	if s.plane != nil {
		s.plane.Stop()
	}
}

// report is a table in Markdown of all cases that have ended.
var report struct {
	sync.Mutex
	rows []string
}

const reportHead = "| case | compared | of these with a record | wrong | during it | from memory | not answered | followers true | all back |\n" +
	"|---|---|---|---|---|---|---|---|---|"

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{Parallel: atOnce, SetUp: func(s *harness.Suite) error {
		s.Cleanup(func() error {
			for _, stage := range []*stage{quiet, broken, pair, upgraded} {
				stage.close()
			}
			if len(report.rows) > 0 {
				_, _ = fmt.Println(reportHead + "\n" + strings.Join(report.rows, "\n"))
			}
			return nil
		})
		if *binary != "" {
			return nil
		}
		_, err := harness.BuildProxy()
		return err
	}})
}

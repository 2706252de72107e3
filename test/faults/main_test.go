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
	// patience ends a wait for something that must come; no case passes because of it. After a long outage listproxy's
	// streams wait up to 45 seconds before they try again.
	patience = 3 * time.Minute
	// requestTimeout is the timeout of clients. A request that is forwarded to a paused API server takes this long.
	requestTimeout = 10 * time.Second
	pollEvery      = 20 * time.Millisecond
)

// parallelTests is larger than the number of cases: all run at a time, and wait for places on stages.
const parallelTests = 100

// stage is a control plane that cases share. The first case that needs it starts it.
type stage struct {
	places         chan struct{} // has an element for each case that runs; its capacity is the number of cases at a time
	options        controlplane.Options
	moreServers    int    // the number of API servers besides the first
	serversVersion string // the version of these API servers; "" is that of the first

	start   sync.Once
	plane   *controlplane.ControlPlane
	servers []*controlplane.APIServer // those besides the first
	err     error                     // the result of run
}

// newStage returns a stage with places for that many cases at a time.
func newStage(places int) *stage { return &stage{places: make(chan struct{}, places)} }

var (
	// quietStage is for cases whose fault is not in the control plane.
	quietStage = newStage(2)
	// brokenStage is for cases that break the control plane, one after the other.
	brokenStage = newStage(1)
	// pairStage has two more API servers, which cases break. Nothing happens to the first one.
	pairStage = &stage{places: make(chan struct{}, 1), moreServers: 2}
	// upgradedStage has three more API servers of an older version. Two of them are upgraded.
	upgradedStage = &stage{
		places: make(chan struct{}, 1), moreServers: 3, serversVersion: oldVersion,
		options: controlplane.Options{APIServerArgs: newVersionArgs()},
	}
)

// enter waits for a place, and starts the control plane if nobody has. The caller must call leave, also after an error.
func (s *stage) enter(ctx context.Context) (leave func(), err error) {
	s.places <- struct{}{}
	s.start.Do(func() { s.err = s.run(ctx) })
	return func() { <-s.places }, s.err
}

// run starts the control plane and its further API servers.
func (s *stage) run(ctx context.Context) (err error) {
	s.options.Log = harness.Log
	if s.plane, err = controlplane.Start(ctx, s.options); err != nil {
		return err
	}
	for range s.moreServers {
		server, err := s.plane.AddAPIServer(ctx, s.serversVersion)
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

// report has the rows of a Markdown table, one for each case that has ended.
var report struct {
	sync.Mutex
	rows []string
}

const reportHead = "| case | compared | of these with a record | wrong | during it | from memory | not answered | " +
	"followers true | all back |\n|---|---|---|---|---|---|---|---|---|"

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{Parallel: parallelTests, SetUp: func(s *harness.Suite) error {
		s.Cleanup(func() error {
			for _, stage := range []*stage{quietStage, brokenStage, pairStage, upgradedStage} {
				stage.close()
			}
			if len(report.rows) > 0 {
				_, _ = fmt.Println(reportHead + "\n" + strings.Join(report.rows, "\n"))
			}
			return nil
		})
		_, err := listproxyProgram(harness.BuildProxy) // before the first case
		return err
	}})
}

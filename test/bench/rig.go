package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/process"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	podsPerNode = 30
	// patience is the longest wait for something that must come.
	patience = 2 * time.Minute
	// pollInterval is the time between two checks whether it has come.
	pollInterval = 100 * time.Millisecond
	// idleTime is the time for which the CPU use of idle processes is measured.
	idleTime = 3 * time.Second
	// writesPerSecond is the rate of each of the writers that [bench.startWrites] starts.
	writesPerSecond = 47
)

// bench runs a control plane and processes of listproxy, and measures them.
type bench struct {
	settings settings
	out      io.Writer // for tables
	log      func(format string, args ...any)

	connections map[string]*http.Client // by server, user, protocol and client; [bench.connection] adds them

	cp      *controlplane.ControlPlane
	binary  string // the program of listproxy, built as it is shipped
	running []*harness.Proxy
	kube    kubernetes.Interface // directly at kube-apiserver
	store   *workload.Store      // etcd, past kube-apiserver

	changedPods  []*corev1.Pod // all pods, once changeHundredth has been called
	changeRounds int           // calls of changeHundredth
	// writesCompared reports that objects in compared answers are being written, so that answers of two sides may differ.
	writesCompared bool
}

// open starts a control plane with pods. The bench must be closed, also after an error.
func (b *bench) open(ctx context.Context) (err error) {
	if b.binary, err = harness.BuildPlainProxy(); err != nil {
		return err
	}
	if b.cp, err = controlplane.Start(ctx, controlplane.Options{Log: func(line string) { b.log("%s", line) }}); err != nil {
		return err
	}
	// listproxy's files go into the control plane's directory, which is removed however this process ends.
	if err := os.Setenv("TMPDIR", b.cp.Dir()); err != nil {
		return err
	}
	b.store = workload.NewStore(b.cp)
	b.kube, err = kubernetes.NewForConfig(b.cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return err
	}
	return b.fillPods(ctx)
}

func (b *bench) close() (err error) {
	for _, p := range b.running {
		err = errors.Join(err, p.Stop())
	}
	if b.cp != nil {
		b.cp.Stop()
	}
	return err
}

// podShape makes the pods of the measurements.
func (b *bench) podShape() workload.Pods {
	return workload.Pods{Nodes: b.settings.pods/podsPerNode + 1}
}

// changingNamespace is the namespace of the only config map that [bench.startWrites] changes. No measurement lists 0 config
// maps, so the name objects-0 is free for it.
var changingNamespace = configMapsNamespace(0)

// fillPods writes the pods, and the config map in changingNamespace.
func (b *bench) fillPods(ctx context.Context) error {
	begun := time.Now()
	err := workload.Fill(ctx, b.cp, b.podShape(), b.settings.pods)
	b.log("%d pods written in %v", b.settings.pods, time.Since(begun).Round(100*time.Millisecond))
	if err != nil {
		return err
	}
	return workload.FillConfigMaps(ctx, b.cp, changingNamespace, 1, configMapBytes)
}

// start starts a program of listproxy, or the limit, in front of an upstream.
func (b *bench) start(ctx context.Context, program string, upstream *rest.Config, args ...string) (*harness.Proxy, error) {
	p, err := harness.StartProxy(ctx, harness.ProxyOptions{
		Upstream: upstream, Binary: program, Args: slices.Concat([]string{"--log-level", "info"}, args, b.settings.args),
	})
	if err == nil {
		b.running = append(b.running, p)
	}
	return p, err
}

// stopLast stops the process that was started last.
func (b *bench) stopLast() error {
	last := len(b.running) - 1
	p := b.running[last]
	b.running = b.running[:last]
	return p.Stop()
}

// side is a server to which the same requests go.
type side struct {
	name  string
	proxy *harness.Proxy // a listproxy or the limit; nil for kube-apiserver
}

// direct is kube-apiserver, without a proxy before it.
var direct = side{name: "kube-apiserver"}

// startSide starts a listproxy as it is shipped.
func (b *bench) startSide(ctx context.Context, name string, args ...string) (side, error) {
	return b.startProgram(ctx, program{path: b.binary}, name, args...)
}

// program is a compiled listproxy. suffix ends the names of its sides: beforeSuffix for that of the commit before, or else "".
type program struct{ path, suffix string }

// startProgram starts a program of listproxy.
func (b *bench) startProgram(ctx context.Context, binary program, name string, args ...string) (side, error) {
	p, err := b.start(ctx, binary.path, b.cp.RESTConfig(controlplane.Feed), args...)
	return side{name: name + binary.suffix, proxy: p}, err
}

// programs returns listproxy and, with --before, that of the commit before.
func (b *bench) programs() []program {
	all := []program{{path: b.binary}}
	if b.settings.before != "" {
		all = append(all, program{path: b.settings.before, suffix: beforeSuffix})
	}
	return all
}

// startSides starts each of the programs.
func (b *bench) startSides(ctx context.Context, name string, args ...string) (sides []side, err error) {
	for _, binary := range b.programs() {
		started, err := b.startProgram(ctx, binary, name, args...)
		if err != nil {
			return nil, err
		}
		sides = append(sides, started)
	}
	return sides, nil
}

// config returns the configuration of a user's client, or of the admin's for "".
func (b *bench) config(target side, user string) *rest.Config {
	cfg := b.cp.RESTConfig(cmp.Or(user, controlplane.Admin))
	if target.proxy != nil {
		return target.proxy.RESTConfig(cfg)
	}
	return cfg
}

// pids returns the processes of a side: kube-apiserver, and the side's proxy if it has one.
func (b *bench) pids(target side) ([]int, error) {
	kube, err := b.cp.First.PID()
	if err != nil || target.proxy == nil {
		return []int{kube}, err
	}
	return []int{kube, target.proxy.PID()}, nil
}

// cpu is the CPU use of kube-apiserver and of the proxy of a side. As durations they are CPU times, and as floats they are
// shares: 0.05 is 50 ms of CPU time in a second.
type cpu[T time.Duration | float64] struct{ kube, proxy T }

// noIdle makes [bench.measureCPU] subtract nothing.
var noIdle cpu[float64]

// runMeasured calls do, and returns the CPU time that the processes of a side use meanwhile, and the time that do takes.
func (b *bench) runMeasured(target side, do func() error) (used cpu[time.Duration], took time.Duration, err error) {
	pids, err := b.pids(target)
	if err != nil {
		return used, 0, err
	}
	begun := time.Now()
	byProcess, err := process.Used(do, pids...)
	if err != nil {
		return used, 0, err
	}
	used.kube = byProcess[0]
	if target.proxy != nil {
		used.proxy = byProcess[1]
	}
	return used, time.Since(begun), nil
}

// measureCPU calls do, and adds the CPU time that the processes of a side use meanwhile to r. It subtracts what they would have
// used in that time when idle.
func (b *bench) measureCPU(target side, idle cpu[float64], r *row, do func() error) error {
	used, took, err := b.runMeasured(target, do)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", r.request, target.name, err)
	}
	r.kubeCPU += used.kube - time.Duration(idle.kube*float64(took))
	r.proxyCPU += used.proxy - time.Duration(idle.proxy*float64(took))
	return nil
}

// measureIdle waits for idleTime, and returns the shares of a CPU that kube-apiserver and the proxy of a side use meanwhile.
func (b *bench) measureIdle(ctx context.Context, target side) (cpu[float64], error) {
	used, took, err := b.runMeasured(target, func() error {
		clock.Sleep(ctx, idleTime)
		return ctx.Err()
	})
	if err != nil {
		return cpu[float64]{}, fmt.Errorf("%s, idle: %w", target.name, err)
	}
	return cpu[float64]{kube: used.kube.Seconds() / took.Seconds(), proxy: used.proxy.Seconds() / took.Seconds()}, nil
}

// residentMemory returns the resident bytes of kube-apiserver, and of the side's proxy if it has one.
func (b *bench) residentMemory(target side) (kube, proxy int64, err error) {
	pids, err := b.pids(target)
	if err != nil {
		return 0, 0, err
	}
	kube, _, err = process.Memory(pids[0])
	if err != nil || target.proxy == nil {
		return kube, 0, err
	}
	proxy, _, err = process.Memory(pids[1])
	return kube, proxy, err
}

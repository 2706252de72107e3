package attacks

import (
	"context"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/process"
	"github.com/listproxy/listproxy/test/harness/soak"
)

// What kube-apiserver counts, and is looked at here.
const (
	authentications = "authentication_attempts"
	reviewed        = "selfsubjectaccessreviews"
)

// crowdPatience ends a wait for an attack that must begin; no test passes because of it.
const crowdPatience = 5 * time.Minute

// figures are what was measured while the other caller worked.
type figures struct {
	work   work
	attack pressed
	took   time.Duration
	// upstream is kube-apiserver's CPU time, and proxy is listproxy's.
	upstream, proxy time.Duration
	// rss and peak are the resident memory of the side that was attacked, before and at most.
	rss, peak                int64
	authentications, reviews float64
	// held is what that side held before, and most beside the attack.
	held, most held
}

// held is what a process holds.
type held struct{ goroutines, descriptors float64 }

// holds asks the side what it holds.
func (s *side) holds() (h held) {
	s.Helper()
	url, client := s.url, s.observer()
	defer client.CloseIdleConnections()
	if s.proxy != nil {
		url = s.proxy.AdminURL()
	}
	return held{
		goroutines:  s.sum(s.Context(), client, url+"/metrics", "go_goroutines", nil),
		descriptors: s.sum(s.Context(), client, url+"/metrics", "process_open_fds", nil),
	}
}

// observer may ask kube-apiserver what it counts.
func (s *side) observer() *http.Client {
	s.Helper()
	client, err := rest.HTTPClientFor(s.rig.plane.RESTConfig(controlplane.Admin))
	s.must(err)
	return client
}

// measure lets the other caller work beside an attack, which has begun before and ends after. nil:
// no attack.
func (s *side) measure(attack crowdAttack, length time.Duration) (f figures) {
	s.Helper()
	other := newOtherCaller(s)
	// What happens once is over: the connection is open, the token is accepted.
	warmUp, cancel := context.WithTimeout(s.Context(), time.Second)
	other.work(warmUp)
	cancel()

	upstream := s.rig.directly(s.T)
	before, _, err := process.Memory(s.pid)
	s.must(err)
	s.must(process.ResetPeak(s.pid))
	attacking, stop := context.WithCancel(s.Context())
	defer stop()
	ended := make(chan pressed, 1)
	counted0 := s.counted()
	f.held = s.holds()
	upstream0, own0 := upstream.used(), s.used()
	begun := time.Now()
	if attack != nil {
		ready := make(chan struct{})
		go func() {
			defer close(ended) // also where the test has failed
			ended <- attack(attacking, s, func() { close(ready) })
		}()
		select {
		case <-ready:
		case <-ended:
			s.Fatal("the attack has ended before it was in place")
		case <-time.After(crowdPatience):
			s.Fatal("the attack does not begin")
		}
	}
	working, cancel := context.WithTimeout(s.Context(), length)
	f.work = other.work(working)
	cancel()
	if _, peak, err := process.Memory(s.pid); err == nil {
		f.rss, f.peak = before, peak
	}
	f.most = s.holds()
	stop()
	if attack != nil {
		f.attack = <-ended
	}
	f.took = time.Since(begun)
	f.upstream = upstream.used() - upstream0
	if s.proxy != nil {
		f.proxy = s.used() - own0
	}
	counted1 := s.counted()
	f.authentications = counted1[authentications] - counted0[authentications]
	f.reviews = counted1[reviewed] - counted0[reviewed]
	return f
}

func (s *side) used() time.Duration {
	s.Helper()
	cpu, err := process.CPU(s.pid)
	s.must(err)
	return cpu
}

// counted is what kube-apiserver has counted.
func (s *side) counted() map[string]float64 {
	s.Helper()
	client := s.observer()
	defer client.CloseIdleConnections()
	at := s.rig.plane.URL() + "/metrics"
	return map[string]float64{
		authentications: s.sum(s.Context(), client, at, authentications, nil),
		reviewed:        s.sum(s.Context(), client, at, "apiserver_request_total", map[string]string{"resource": reviewed}),
	}
}

// gauge reads one of listproxy's metrics, all labels together.
func (s *side) gauge(ctx context.Context, name string) float64 {
	s.Helper()
	return s.sum(ctx, http.DefaultClient, s.proxy.AdminURL()+"/metrics", name, nil)
}

// sum adds up the series of a metric that have these labels.
func (s *side) sum(ctx context.Context, client *http.Client, url, name string, labels map[string]string) float64 {
	s.Helper()
	sum, _, err := soak.Sum(ctx, client, url, name, labels)
	s.must(err)
	return sum
}

// eventually waits for what must come.
func (s *side) eventually(what string, is func() bool) {
	s.Helper()
	poll.Until(s, crowdPatience, what, is)
}

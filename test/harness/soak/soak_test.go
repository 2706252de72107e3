package soak

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
)

const mib = 1 << 20

// rests is how many there are in a run, and seconds how long each is.
const rests, seconds = 5, 6

// usual is what a process takes in the i-th sample of its rests. Even then garbage is collected, and
// requests come and go.
func usual(i int) Sample {
	return Sample{
		Rest: 1 + i/seconds, RSS: 58*mib + float64(i%2)*mib, Heap: 8*mib + float64(i%3)*mib,
		Goroutines: 80 + float64(i%4), FDs: 15 + float64(i%2), Upstream: 2 + float64(i%2),
	}
}

// TestGrowth: what rises from rest to rest grows, unless it is little or chance.
func TestGrowth(t *testing.T) {
	for name, tt := range map[string]struct {
		short  bool // two minutes, and not twenty
		change func(rest float64, s *Sample)
		want   []string
	}{
		"flat":            {},
		"flat, and short": {short: true},
		"a first rest that happens to be low": {change: func(rest float64, s *Sample) {
			if rest == 1 {
				s.Heap -= 2.4 * mib
			}
		}},
		"moments": {change: func(_ float64, s *Sample) {
			if s.Goroutines == 83 {
				s.Goroutines = 5000
			}
		}},
		"memory that the runtime gives back later": {change: func(rest float64, s *Sample) { s.RSS, s.Free = s.RSS+rest*16*mib, rest*16*mib }},
		"memory": {
			change: func(rest float64, s *Sample) { s.Heap += rest * 2 * mib; s.RSS += rest * 2 * mib },
			want:   []string{"MiB of resident memory in use", "MiB of heap"},
		},
		"no heap":               {change: func(rest float64, s *Sample) { s.RSS += rest * 4 * mib }, want: []string{"MiB of resident memory in use"}},
		"heap":                  {change: func(rest float64, s *Sample) { s.Heap += rest * mib / 2 }, want: []string{"MiB of heap"}},
		"goroutines":            {change: func(rest float64, s *Sample) { s.Goroutines += rest * 3 }, want: []string{"goroutines"}},
		"descriptors":           {change: func(rest float64, s *Sample) { s.FDs += rest * 2 }, want: []string{"file descriptors"}},
		"connections":           {change: func(rest float64, s *Sample) { s.Upstream += rest * 2 }, want: []string{"connections to the API server"}},
		"little in a short run": {short: true, change: func(rest float64, s *Sample) { s.Goroutines += rest * 3 }},
		"much in a short run":   {short: true, change: func(rest float64, s *Sample) { s.Goroutines += rest * 20 }, want: []string{"goroutines"}},
	} {
		t.Run(name, func(t *testing.T) {
			between := 5 * time.Minute
			if tt.short {
				between /= 10
			}
			began := time.Now()
			var samples []Sample
			for i := range rests * seconds {
				s := usual(i)
				s.At = began.Add(time.Duration(s.Rest)*between + time.Duration(i%seconds)*time.Second)
				if tt.change != nil {
					tt.change(float64(s.Rest), &s)
				}
				samples = append(samples, s)
			}
			all, err := Grown(samples)
			expect.NoError(t, err)
			var got []string
			for _, g := range all {
				if g.Grows() {
					got = append(got, g.Name)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s\n%v", diff, all)
			}
		})
	}
	for name, samples := range map[string][]Sample{"nothing": nil, "one rest": {{Rest: 1}, {Rest: 1}}} {
		if all, err := Grown(samples); err == nil {
			t.Errorf("of %s there is a verdict: %v", name, all)
		}
	}
}

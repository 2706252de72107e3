package statusz

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
)

func TestBar(t *testing.T) {
	for name, tt := range map[string]struct {
		c    Collection
		want []barPart
	}{
		"nothing": {Collection{Window: 150}, nil},
		"all of the window": {
			Collection{History: 150, Window: 150, Spans: []Span{{1, 100}}},
			[]barPart{{X: 0, Width: 1000, From: 1, To: 100}},
		},
		"half of it": {
			Collection{History: 75, Window: 150, Spans: []Span{{7, 7}}},
			[]barPart{{X: 500, Width: 500, From: 7, To: 7}},
		},
		"more than all": {
			Collection{History: 151, Window: 150, Spans: []Span{{1, 2}}},
			[]barPart{{X: 0, Width: 1000, From: 1, To: 2}},
		},
		"a moment": {
			Collection{History: 0.001, Window: 150, Spans: []Span{{1, 2}}},
			[]barPart{{X: 994, Width: 6, From: 1, To: 2}},
		},
		"a gap": {
			Collection{History: 150, Window: 150, Spans: []Span{{1, 50}, {76, 100}}},
			[]barPart{{X: 0, Width: 497, From: 1, To: 50}, {X: 497, Width: 251, Gap: true, From: 51, To: 75}, {X: 748, Width: 252, From: 76, To: 100}},
		},
		"a gap too small to see": {
			Collection{History: 150, Window: 150, Spans: []Span{{1, 500000}, {500002, 1000000}}},
			[]barPart{{X: 0, Width: 497, From: 1, To: 500000}, {X: 497, Width: 6, Gap: true, From: 500001, To: 500001}, {X: 503, Width: 497, From: 500002, To: 1000000}},
		},
	} {
		if diff := cmp.Diff(tt.want, layBar(tt.c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Parts follow each other without a hole to the end, and can all be seen, however many there are.
func TestBarIsWhole(t *testing.T) {
	for _, spans := range []int{1, 2, 3, 10, 83, 84, 85, 1000} {
		for _, history := range []float64{0, 0.5, 10, 149, 150} {
			c := Collection{History: history, Window: 150}
			for i := range spans {
				from := uint64(i*i*1000 + 1)
				c.Spans = append(c.Spans, Span{From: from, To: from + uint64(i)})
			}
			parts := layBar(c)
			end := parts[0].X
			for i, p := range parts {
				if p.X != end || p.Width < barLeast || p.Gap != (i%2 == 1) {
					t.Fatalf("%d spans, %v s: part %d is %+v after %d", spans, history, i, p, end)
				}
				end = p.X + p.Width
			}
			if end != barWidth || parts[0].X < 0 {
				t.Errorf("%d spans, %v s: from %d to %d", spans, history, parts[0].X, end)
			}
		}
	}
}

func TestFormats(t *testing.T) {
	got := []string{
		formatBytes(0), formatBytes(1023), formatBytes(1536), formatBytes(10 << 20), formatBytes(3 << 40), formatBytes(5000 << 40),
		formatBytes(1<<20 - 1), formatBytes(10<<10 - 1), formatSeconds(59.9), formatSeconds(-1),
		formatCount(0), formatCount(999), formatCount(1000), formatCount(1234567),
		formatSeconds(0), formatSeconds(9.96), formatSeconds(59), formatSeconds(61), formatSeconds(3725), formatSeconds(200000),
		formatShare(0), formatShare(1), formatShare(0.5), formatShare(0.0001), formatShare(0.9999),
		formatBound(1, 0), formatBound(1, 2),
	}
	want := []string{
		"0 B", "1023 B", "1.5 KiB", "10 MiB", "3.0 TiB", "5000 TiB",
		"1.0 MiB", "10 KiB", "59s", "0.0s",
		"0", "999", "1,000", "1,234,567",
		"0.0s", "10s", "59s", "1m01s", "1h02m", "2d7h",
		"0.0 %", "100.0 %", "50.0 %", "< 0.1 %", "> 99.9 %",
		"1 B, no bound", "1 B of 2 B",
	}
	expect.Same(t, want, got)
}

// layBar leaves out the oldest spans where there are too many.
func TestBarKeepsTheNewest(t *testing.T) {
	c := Collection{History: 150, Window: 150}
	for i := range 500 {
		c.Spans = append(c.Spans, Span{From: uint64(i*10 + 1), To: uint64(i*10 + 5)})
	}
	parts := layBar(c)
	if last := parts[len(parts)-1]; last.To != 4995 || last.Gap {
		t.Errorf("the last part is %+v", last)
	}
}

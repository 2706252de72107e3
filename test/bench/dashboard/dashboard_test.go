package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
)

func TestQuantile(t *testing.T) {
	inf := math.Inf(1)
	for name, tt := range map[string]struct {
		q       float64
		buckets map[float64]float64
		want    float64
	}{
		"half of an even spread":   {0.5, map[float64]float64{1: 10, 2: 20, inf: 20}, 1},
		"within a bucket":          {0.75, map[float64]float64{1: 10, 2: 20, inf: 20}, 1.5},
		"beyond the last bound":    {0.99, map[float64]float64{1: 1, 2: 2, inf: 20}, 2},
		"nothing below the bucket": {0.5, map[float64]float64{1: 0, 2: 4, inf: 4}, 1.5},
	} {
		t.Run(name, func(t *testing.T) {
			if got := quantile(tt.q, tt.buckets); got != tt.want {
				t.Errorf("%v, not %v", got, tt.want)
			}
		})
	}
	if got := quantile(0.5, map[float64]float64{1: 0, inf: 0}); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
}

// counted is a scrape in which a counter with a label has a value.
func counted(at time.Time, value float64) sample {
	series := func(result string, value float64) *dto.Metric {
		return &dto.Metric{
			Label:   []*dto.LabelPair{{Name: new("result"), Value: new(result)}},
			Counter: &dto.Counter{Value: new(value)},
		}
	}
	return sample{at: at, families: map[string]*dto.MetricFamily{
		"lookups": {Metric: []*dto.Metric{series("hit", value*3), series("miss", value)}},
	}}
}

func TestRateAndShare(t *testing.T) {
	start := time.Unix(1000, 0)
	samples := []sample{counted(start, 0), counted(start.Add(window), 12), counted(start.Add(2*window), 36)}
	each := window.Seconds()
	got := rate(samples, "lookups", labels{"result": "miss"})
	if !math.IsNaN(got[0]) {
		t.Errorf("a rate before there are two samples: %v", got[0])
	}
	if diff := cmp.Diff([]float64{12 / each, 24 / each}, got[1:]); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{0.75, 0.75}, share(samples, "lookups")[1:]); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
}

func TestRoundUp(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 0.011: 0.02, 1: 1, 3: 5, 51: 100, 1e6: 1e6} {
		if got := roundUp(v); math.Abs(got-want) > want*1e-9 {
			t.Errorf("%v becomes %v, not %v", v, got, want)
		}
	}
}

func TestScale(t *testing.T) {
	lines := []line{{"a", []float64{0.002, math.NaN(), 0.5}}}
	for name, tt := range map[string]struct {
		log   bool
		marks []float64
		of    float64
		want  float64
	}{
		"even":        {false, []float64{0, 0.125, 0.25, 0.375, 0.5}, 0.25, 0.5},
		"logarithmic": {true, []float64{0.001, 0.01, 0.1, 1}, 0.1, 2.0 / 3},
	} {
		t.Run(name, func(t *testing.T) {
			marks, part := panel{log: tt.log}.scale(lines)
			if len(marks) != len(tt.marks) || math.Abs(marks[1]-tt.marks[1]) > 1e-9 {
				t.Errorf("marks %v, not %v", marks, tt.marks)
			}
			if got := part(tt.of); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("%v is at %v, not %v", tt.of, got, tt.want)
			}
		})
	}
}

// TestDraw: the picture is well-formed, and a hole divides a line.
func TestDraw(t *testing.T) {
	times := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}
	picture := draw("a & b", []panel{{title: "<x>", unit: percent, times: times, lines: []line{
		{"holed", []float64{0.1, 0.2, math.NaN(), 0.3, 0.4}}, {"nothing", make([]float64, 5)},
	}}})
	decoder := xml.NewDecoder(strings.NewReader(picture))
	pieces := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, picture)
		}
		if element, ok := token.(xml.StartElement); ok && element.Name.Local == "polyline" {
			pieces++
		}
	}
	if pieces != 2 {
		t.Errorf("%d pieces of a line with one hole", pieces)
	}
	if strings.Contains(picture, "NaN") || strings.Contains(picture, "%!") || strings.Contains(picture, ">nothing<") {
		t.Errorf("what is not there is drawn:\n%s", picture)
	}
}

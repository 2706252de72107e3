package statusz

import "fmt"

// Traffic is what became of requests in a time.
type Traffic struct {
	// Seconds is how long the time is.
	Seconds float64 `json:"seconds"`
	// The counts are as in [Lists].
	Answered  int64    `json:"answered"`
	Forwarded int64    `json:"forwarded"`
	Streaming int64    `json:"streaming"`
	Share     *float64 `json:"share,omitempty"`
	Other     int64    `json:"other"`
	Refused   int64    `json:"refused"`
	// TooMany are the requests that listproxy answered with 429, and UpstreamTooMany those that the
	// API server did.
	TooMany         int64 `json:"tooMany"`
	UpstreamTooMany int64 `json:"upstreamTooMany"`
	// Memory is how long lists from memory took until their end, Upstream how long forwarded ones.
	Memory   Latency `json:"memoryLatency"`
	Upstream Latency `json:"upstreamLatency"`
	// Reviews is how long the API server took to answer what callers may do.
	Reviews Latency `json:"reviewLatency"`
	// ReviewsKnown are the questions what a caller may do whose answer was remembered.
	ReviewsKnown int64 `json:"reviewsKnown"`
}

// Latency is how long requests took. Quantiles are of a histogram, so they are estimates.
type Latency struct {
	Requests int64   `json:"requests"`
	Median   float64 `json:"medianSeconds"`
	P99      float64 `json:"p99Seconds"`
}

// All is how many lists there were.
func (t Traffic) All() int64 { return t.Answered + t.Forwarded + t.Streaming }

// SetShare sets Share from the counts.
func (t *Traffic) SetShare() { t.Share = shareOf(t.Answered, t.All()) }

// Inflight is what is in flight now, and what of it waits for its turn.
type Inflight struct {
	Requests    int64 `json:"requests"`
	LongRunning int64 `json:"longRunning"`
	Bytes       int64 `json:"bytes"`
	Waiting     int64 `json:"waiting"`
}

// trafficRow is one line of the table of traffic.
type trafficRow struct{ Name, Recent, Total string }

// trafficRows are the lines of the table, the same in text and on the page.
func trafficRows(recent, total Traffic) []trafficRow {
	row := func(name string, of func(Traffic) string) trafficRow {
		return trafficRow{name, of(recent), of(total)}
	}
	return []trafficRow{
		row("share of lists from memory", func(t Traffic) string {
			if t.Share == nil {
				return "–"
			}
			return formatShare(*t.Share)
		}),
		row("lists from memory", func(t Traffic) string { return formatRate(t.Answered, t.Seconds) }),
		row("lists forwarded", func(t Traffic) string { return formatRate(t.Forwarded, t.Seconds) }),
		row("streaming lists, forwarded", func(t Traffic) string { return formatRate(t.Streaming, t.Seconds) }),
		row("other requests, forwarded", func(t Traffic) string { return formatRate(t.Other, t.Seconds) }),
		row("refused by listproxy", func(t Traffic) string { return formatRate(t.Refused, t.Seconds) }),
		row("429 by listproxy", func(t Traffic) string { return formatRate(t.TooMany, t.Seconds) }),
		row("429 by kube-apiserver", func(t Traffic) string { return formatRate(t.UpstreamTooMany, t.Seconds) }),
		row("latency of lists from memory", func(t Traffic) string { return formatLatency(t.Memory) }),
		row("latency of lists forwarded", func(t Traffic) string { return formatLatency(t.Upstream) }),
		row("reviews, remembered", func(t Traffic) string { return formatRate(t.ReviewsKnown, t.Seconds) }),
		row("reviews, asked", func(t Traffic) string { return formatRate(t.Reviews.Requests, t.Seconds) }),
		row("latency of reviews", func(t Traffic) string { return formatLatency(t.Reviews) }),
	}
}

// formatRate writes a count, and how many that are in a second.
func formatRate(n int64, seconds float64) string {
	if n == 0 || seconds <= 0 {
		return formatCount(n)
	}
	rate, unit := float64(n)/seconds, "s"
	if rate < 0.1 {
		rate, unit = rate*60, "min"
	}
	if rate < 0.1 {
		rate, unit = rate*60, "h"
	}
	return fmt.Sprintf("%s (%.1f/%s)", formatCount(n), rate, unit)
}

// formatSpan writes a time of which something is told: whole minutes if it has some.
func formatSpan(s float64) string {
	if minutes := int(s+0.5) / 60; minutes > 0 && minutes < 60 {
		if minutes == 1 {
			return "minute"
		}
		return fmt.Sprintf("%d minutes", minutes)
	}
	return formatSeconds(s)
}

// formatLatency writes a median and a 99th percentile.
func formatLatency(l Latency) string {
	if l.Requests == 0 {
		return "–"
	}
	return "median " + formatMilliseconds(l.Median) + ", p99 " + formatMilliseconds(l.P99)
}

// formatMilliseconds writes a short time.
func formatMilliseconds(s float64) string {
	switch {
	case s >= 10:
		return formatSeconds(s)
	case s >= 1:
		return fmt.Sprintf("%.1f s", s)
	case s >= 0.01:
		return fmt.Sprintf("%.0f ms", s*1000)
	}
	return fmt.Sprintf("%.1f ms", s*1000)
}

// formatInflight writes what is in flight.
func formatInflight(i Inflight) string {
	text := fmt.Sprintf("%s requests, %s watches and the like, %s of lists from memory", formatCount(i.Requests), formatCount(i.LongRunning),
		formatBytes(i.Bytes))
	if i.Waiting > 0 {
		text += ", " + formatCount(i.Waiting) + " waiting"
	}
	return text
}

// formatVerified says how long ago it was proven that a collection was as new as the API server,
// and how long ago it may be.
func formatVerified(c Collection) string {
	switch {
	case c.Lag == nil:
		return "never verified"
	case c.Bound <= 0:
		return "verified " + formatSeconds(*c.Lag) + " ago"
	}
	return "verified " + formatSeconds(*c.Lag) + " ago (bound " + formatSeconds(c.Bound) + ")"
}

// verifiedClass is the class of that on the page: it is in colour only past half of the bound,
// since on a quiet resource it is verified every fifth of it.
func verifiedClass(c Collection) string {
	switch {
	case c.Lag == nil, c.Bound <= 0, *c.Lag <= c.Bound/2:
		return ""
	case *c.Lag < c.Bound:
		return "warn"
	}
	return "bad"
}

package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
)

// The measures of the picture, in pixels.
const (
	columns     = 2
	panelWidth  = 520
	panelHeight = 250
	plotLeft    = 70
	plotRight   = 16
	plotTop     = 34
	plotBottom  = 72 // with the legend below
	titleHeight = 40
	// maxLines is how many lines a panel has: those with the largest values.
	maxLines = 6
	legendIn = 3 // columns
)

// colours are told apart without seeing red and green (Okabe and Ito).
func colours() []string {
	return []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"}
}

// draw draws panels below each other, in two columns.
func draw(title string, all []panel) string {
	rows := (len(all) + columns - 1) / columns
	width, height := columns*panelWidth, titleHeight+rows*panelHeight
	var b strings.Builder
	write := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	write(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d"`+
		` font-family="sans-serif" font-size="11">`, width, height)
	write(`<title>%s</title>`, html.EscapeString(title))
	write(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	write(`<text x="16" y="26" font-size="15" font-weight="bold">%s</text>`, html.EscapeString(title))
	for i, p := range all {
		write(`<g transform="translate(%d,%d)">`, i%columns*panelWidth, titleHeight+i/columns*panelHeight)
		p.draw(write)
		write(`</g>`)
	}
	write("</svg>")
	return b.String()
}

// draw draws one panel, with its origin at its corner.
func (p panel) draw(write func(string, ...any)) {
	lines := p.shown()
	end := p.times[len(p.times)-1]
	x := func(t time.Duration) float64 {
		return plotLeft + float64(t)/float64(max(end, 1))*(panelWidth-plotLeft-plotRight)
	}
	marks, part := p.scale(lines)
	y := func(v float64) float64 {
		return panelHeight - plotBottom - part(v)*(panelHeight-plotBottom-plotTop)
	}
	write(`<text x="16" y="20" font-weight="bold">%s</text>`, html.EscapeString(p.title))
	for _, v := range marks {
		write(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#d0d7de"/><text x="%d" y="%.1f" text-anchor="end" fill="#57606a">%s</text>`,
			plotLeft, y(v), panelWidth-plotRight, y(v), plotLeft-6, y(v)+4, html.EscapeString(p.unit(v)))
	}
	for t := time.Duration(0); t <= end; t += tick(end) {
		write(`<text x="%.1f" y="%d" text-anchor="middle" fill="#57606a">%s</text>`, x(t), panelHeight-plotBottom+15, short(t))
	}
	for i, l := range lines {
		colour := colours()[i%len(colours())]
		for _, stroke := range strokes(l.values, func(j int) string { return fmt.Sprintf("%.1f,%.1f", x(p.times[j]), y(l.values[j])) }) {
			write(`<polyline points="%s" fill="none" stroke="%s" stroke-width="1.6" stroke-linejoin="round"/>`, stroke, colour)
		}
		left, below := plotLeft+i%legendIn*145, panelHeight-plotBottom+34+i/legendIn*16
		write(`<rect x="%d" y="%d" width="9" height="9" fill="%s"/><text x="%d" y="%d">%s</text>`,
			left, below-9, colour, left+14, below, html.EscapeString(l.name))
	}
}

// scale is what stands beside the vertical axis, and where on it a value is, from 0 to 1.
func (p panel) scale(lines []line) (marks []float64, part func(float64) float64) {
	top := 0.0
	for _, l := range lines {
		top = max(top, highest(l.values))
	}
	if !p.log || top == 0 {
		top = roundUp(top)
		return []float64{0, top / 4, top / 2, top * 3 / 4, top}, func(v float64) float64 { return v / top }
	}
	low := top
	for _, l := range lines {
		for _, v := range l.values {
			if v > 0 && v < low {
				low = v
			}
		}
	}
	from, to := math.Floor(math.Log10(low)), math.Ceil(math.Log10(top))
	to = max(to, from+1)
	for power := from; power <= to; power++ {
		marks = append(marks, math.Pow(10, power))
	}
	return marks, func(v float64) float64 { return (math.Log10(max(v, low)) - from) / (to - from) }
}

// shown are the lines that matter most.
func (p panel) shown() []line {
	var lines []line
	for _, l := range p.lines {
		if highest(l.values) > 0 {
			lines = append(lines, l)
		}
	}
	if len(lines) <= maxLines {
		return lines
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(highest(b.values), highest(a.values)) })
	return lines[:maxLines]
}

// highest is the largest value, 0 if there is none.
func highest(values []float64) float64 {
	high := 0.0
	for _, v := range values {
		if v > high && !math.IsInf(v, 1) { // so NaN is left out
			high = v
		}
	}
	return high
}

// roundUp returns the next of 1, 2, 5, 10 and so on.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if v <= step*power*(1+1e-9) {
			return step * power
		}
	}
	return 10 * power
}

// strokes are the points of a line, in pieces between its holes.
func strokes(values []float64, point func(int) string) []string {
	var all []string
	var points []string
	flush := func() {
		if len(points) > 1 {
			all = append(all, strings.Join(points, " "))
		}
		points = nil
	}
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			flush()
			continue
		}
		points = append(points, point(i))
	}
	flush()
	return all
}

// tick is the time between two labels of the axis.
func tick(end time.Duration) time.Duration {
	for _, step := range []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute} {
		if end/step <= 8 {
			return step
		}
	}
	return 10 * time.Minute
}

// short writes 1m30s as 1:30.
func short(t time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(t.Minutes()), int(t.Seconds())%60)
}

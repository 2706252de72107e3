package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Group is a few bars about one thing, one for each series.
type Group struct {
	Label  string
	Values []float64
}

// The measures of a plot, in pixels.
const (
	plotWidth  = 900
	plotLeft   = 230
	plotRight  = 90
	plotTop    = 70
	barHeight  = 11
	groupSpace = 9
)

// Bars draws horizontal bars on a logarithmic scale, with their values as format writes them.
func Bars(title string, series []string, groups []Group, format func(float64) string) string {
	colours := []string{"#8c959f", "#1a7f37", "#bc4c00"}
	low, high := math.Inf(1), 0.0
	for _, g := range groups {
		for _, v := range g.Values {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 {
		low, high = 1, 10
	}
	from, to := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	to = max(to, from+1)
	x := func(v float64) float64 {
		return plotLeft + (math.Log10(max(v, low))-from)/(to-from)*(plotWidth-plotLeft-plotRight)
	}
	each := len(series)*barHeight + groupSpace
	height := plotTop + len(groups)*each + 20

	var b strings.Builder
	write := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	write(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d"`+
		` font-family="sans-serif" font-size="11">`, plotWidth, height)
	write(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	write(`<text x="12" y="20" font-size="14" font-weight="bold">%s</text>`, html.EscapeString(title))
	for i, name := range series {
		write(`<rect x="%d" y="30" width="10" height="10" fill="%s"/><text x="%d" y="39">%s</text>`,
			plotLeft+i*150, colours[i%len(colours)], plotLeft+i*150+15, html.EscapeString(name))
	}
	for power := from; power <= to; power++ {
		v := math.Pow(10, power)
		write(`<line x1="%[1]d" y1="60" x2="%[1]d" y2="%[2]d" stroke="#d0d7de"/>`+
			`<text x="%[1]d" y="56" text-anchor="middle" fill="#57606a">%[3]s</text>`,
			int(plotLeft+(power-from)/(to-from)*(plotWidth-plotLeft-plotRight)), height-12, html.EscapeString(format(v)))
	}
	for i, g := range groups {
		y := plotTop + i*each
		write(`<text x="%d" y="%d" text-anchor="end">%s</text>`, plotLeft-8, y+len(series)*barHeight/2+4, html.EscapeString(g.Label))
		for j, v := range g.Values {
			write(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d" font-size="10">%s</text>`,
				plotLeft, y+j*barHeight, max(1, x(v)-plotLeft), barHeight-1, colours[j%len(colours)],
				max(plotLeft+1, x(v))+4, y+j*barHeight+9, html.EscapeString(format(v)))
		}
	}
	write("</svg>")
	return b.String()
}

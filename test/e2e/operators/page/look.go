package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// screen is what somebody looks at the page with.
type screen struct {
	name          string
	width, height int
	scheme        string
	mobile        bool
}

func screens() []screen {
	return []screen{
		{name: "phone-light", width: 360, height: 780, scheme: "light", mobile: true},
		{name: "phone-dark", width: 360, height: 780, scheme: "dark", mobile: true},
		{name: "desk-light", width: 1280, height: 1000, scheme: "light"},
		{name: "desk-dark", width: 1280, height: 1000, scheme: "dark"},
	}
}

// object is a JSON object.
type object = map[string]any

// inspect says what a page is like, as the browser has it.
const inspect = `JSON.stringify((() => {
	const closed = [...document.querySelectorAll("details:not([open])")];
	for (const details of closed) details.open = true;
	const wide = [...document.querySelectorAll("body *")].filter(e =>
		!e.closest("thead") && !e.closest("svg") && e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 120));
	const seen = {
		overflow: document.documentElement.scrollWidth - innerWidth, wide,
		width: innerWidth, health: document.getElementById("health").textContent,
		rows: document.querySelectorAll("#collections tbody tr, #more-collections tbody tr").length,
		bars: [...document.querySelectorAll("#collections svg, #more-collections svg")].filter(s => s.getBoundingClientRect().height > 4 && s.getBoundingClientRect().width > 50).length,
		background: getComputedStyle(document.body).backgroundColor, when: document.getElementById("when").textContent,
		lost: document.getElementById("lost").textContent,
	};
	for (const details of closed) details.open = false;
	return seen;
})())`

// view is what inspect returns.
type view struct {
	Overflow, Width    float64
	Wide               []string
	Health, When, Lost string
	Background         string
	Rows, Bars         int
}

// expected is what a page is to say.
type expected struct {
	health string
	rows   int // collections; there may be more
}

// look opens a page on a screen, says what is wrong with it, and takes a picture.
func look(ctx context.Context, b *browser, url string, s screen, want expected) ([]byte, error) {
	var target struct {
		TargetID string `json:"targetId"`
	}
	if err := b.do(ctx, "", "Target.createTarget", object{"url": "about:blank"}, &target); err != nil {
		return nil, err
	}
	defer func() { _ = b.do(ctx, "", "Target.closeTarget", object{"targetId": target.TargetID}, nil) }()
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	if err := b.do(ctx, "", "Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return nil, err
	}
	p := page{b: b, session: attached.SessionID}
	for _, command := range []struct {
		method string
		params object
	}{
		{"Runtime.enable", object{}},
		{"Log.enable", object{}},
		{"Page.enable", object{}},
		{"Emulation.setDeviceMetricsOverride", object{"width": s.width, "height": s.height, "deviceScaleFactor": 1, "mobile": s.mobile}},
		{"Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": s.scheme}}}},
		{"Page.navigate", object{"url": url}},
	} {
		if err := b.do(ctx, p.session, command.method, command.params, nil); err != nil {
			return nil, err
		}
	}
	first, err := p.await(ctx, func(view) bool { return true })
	if err != nil {
		return nil, err
	}
	// It renews itself, and what it then shows is as good.
	renewed, err := p.await(ctx, func(v view) bool { return v.When != first.When })
	if err != nil {
		return nil, fmt.Errorf("it does not renew itself: %w", err)
	}
	picture, err := p.picture(ctx)
	return picture, errors.Join(err, b.errors(), first.wrong(s, want), renewed.wrong(s, want))
}

// wrong says what is wrong with a view.
func (v view) wrong(s screen, want expected) error {
	var errs []error
	check := func(right bool, format string, args ...any) {
		if !right {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(int(v.Width) == s.width, "the page is %v pixels wide, and the screen %d", v.Width, s.width)
	check(v.Overflow <= 0 && len(v.Wide) == 0, "it is %v pixels too wide: %q", v.Overflow, v.Wide)
	check(v.Health == want.health, "its health is %q", v.Health)
	check(v.Rows >= want.rows && v.Bars == v.Rows, "there are %d collections and %d bars", v.Rows, v.Bars)
	check(v.Lost == "", "it says %q", v.Lost)
	light := v.Background == "rgb(246, 247, 249)"
	check(light == (s.scheme == "light"), "its background is %s", v.Background)
	return errors.Join(errs...)
}

// page is one that is open.
type page struct {
	b       *browser
	session string
}

// await looks again and again until the page is as it should be.
func (p page) await(ctx context.Context, good func(view) bool) (view, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		v, err := p.inspect(ctx)
		if err == nil && good(v) {
			return v, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return v, errors.Join(ctx.Err(), err)
		}
	}
}

func (p page) inspect(ctx context.Context) (view, error) {
	var got struct {
		Result struct {
			Value string `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	var v view
	if err := p.b.do(ctx, p.session, "Runtime.evaluate", object{"expression": inspect, "returnByValue": true}, &got); err != nil {
		return v, err
	}
	if got.ExceptionDetails != nil {
		return v, fmt.Errorf("not loaded yet: %s", got.ExceptionDetails)
	}
	return v, json.Unmarshal([]byte(got.Result.Value), &v)
}

// picture is a PNG of the screen.
func (p page) picture(ctx context.Context) ([]byte, error) {
	var shot struct {
		Data []byte `json:"data"`
	}
	err := p.b.do(ctx, p.session, "Page.captureScreenshot", object{"format": "png"}, &shot)
	return shot.Data, err
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// browser is a headless Chromium, commanded by its DevTools protocol through a pair of pipes: JSON,
// with a zero byte after each message (https://chromedevtools.github.io/devtools-protocol).
type browser struct {
	cmd  *exec.Cmd
	dir  string
	to   *os.File
	from *os.File

	mu      sync.Mutex
	last    int
	waiting map[int]chan message
	console []string // errors that pages had, and requests that they should not have sent
	ended   error
}

// message is what comes and goes.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func openBrowser(ctx context.Context, path string) (_ *browser, err error) {
	dir, err := os.MkdirTemp("", "statusz-browser-")
	if err != nil {
		return nil, err
	}
	ours, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b := &browser{dir: dir, to: to, from: from, waiting: map[int]chan message{}}
	b.cmd = exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", // #nosec G204 -- the operator's own choice
		"--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+filepath.Join(dir, "profile"), "about:blank")
	b.cmd.Env = append(os.Environ(), "HOME="+dir)
	b.cmd.ExtraFiles = []*os.File{ours, theirs} // 3 and 4, as Chromium expects
	var said bytes.Buffer
	b.cmd.Stderr = &said
	if err := b.cmd.Start(); err != nil {
		return nil, fmt.Errorf("the browser: %w", err)
	}
	_ = ours.Close()
	_ = theirs.Close()
	go b.read(said.String)
	return b, nil
}

// read takes messages until the browser ends.
func (b *browser) read(said func() string) {
	in := bufio.NewReader(b.from)
	for {
		raw, err := in.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.ended = fmt.Errorf("the browser has ended: %w: %.2000s", err, said())
			for id, wait := range b.waiting {
				close(wait)
				delete(b.waiting, id)
			}
			b.mu.Unlock()
			return
		}
		var m message
		if json.Unmarshal(raw[:len(raw)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if wait := b.waiting[m.ID]; m.ID != 0 && wait != nil {
			wait <- m
			delete(b.waiting, m.ID)
		} else {
			b.noteLocked(m)
		}
		b.mu.Unlock()
	}
}

// noteLocked keeps what a page should not have.
func (b *browser) noteLocked(m message) {
	switch m.Method {
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
		b.console = append(b.console, fmt.Sprintf("%s %s", m.Method, m.Params))
	}
}

// errors returns what was noted since it was last asked.
func (b *browser) errors() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, line := range b.console {
		errs = append(errs, errors.New(line))
	}
	b.console = nil
	return errors.Join(errs...)
}

// do sends a command, and reads its result into one of the caller's, which may be nil.
func (b *browser) do(ctx context.Context, session, method string, params, result any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	b.mu.Lock()
	if b.ended != nil {
		defer b.mu.Unlock()
		return b.ended
	}
	b.last++
	m := message{ID: b.last, Session: session, Method: method, Params: raw}
	wait := make(chan message, 1)
	b.waiting[m.ID] = wait
	line, err := json.Marshal(m)
	if err == nil {
		_, err = b.to.Write(append(line, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case m, ok := <-wait:
		switch {
		case !ok:
			return b.ended
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// close ends the browser.
func (b *browser) close() error {
	_ = b.to.Close()
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
	_ = b.from.Close()
	return os.RemoveAll(b.dir)
}

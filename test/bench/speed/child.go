package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// child is a process of this program in another role, which takes orders and answers each one, as
// JSON lines. It ends when its standard input does, and so outlives nobody.
type child struct {
	role string
	cmd  *exec.Cmd
	in   io.WriteCloser
	to   *json.Encoder
	from *json.Decoder
	mu   sync.Mutex // one order at a time
}

// startChild starts this program in a role.
func startChild(role string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{role: role, cmd: exec.Command(program, role)} // #nosec G204 -- this program
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.to, c.from = json.NewEncoder(c.in), json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", role, err)
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// call gives an order, and waits for the answer.
func (c *child) call(order, answer any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.to.Encode(order); err != nil {
		return fmt.Errorf("order the %s: %w", c.role, err)
	}
	if err := c.from.Decode(answer); err != nil {
		return fmt.Errorf("hear the %s: %w", c.role, err)
	}
	return nil
}

func (c *child) stop() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

// obey reads orders and writes answers until the input ends.
func obey[Order, Answer any](ctx context.Context, in io.Reader, out io.Writer, do func(context.Context, Order) Answer) error {
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var order Order
		if err := from.Decode(&order); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := to.Encode(do(ctx, order)); err != nil {
			return err
		}
	}
}

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
)

const (
	// heapPath is where Go programs tell of their memory.
	heapPath = "/debug/pprof/heap"
	// collections is how often garbage is collected before: each makes stacks that were needed
	// smaller by half.
	collections = 5
)

// heapFigures are lines of what runtime/pprof writes with debug=1.
var heapFigures = regexp.MustCompile(`(?m)^# (HeapAlloc|Stack) = (\d+)`)

// inUse is how many bytes a server has on its heap, without garbage, and in stacks. Resident memory
// has garbage, too, and what was needed for moments.
func inUse(ctx context.Context, of server) (heap, stacks int64, err error) {
	client := http.DefaultClient
	if len(of.CA) > 0 {
		if client, err = newHTTPClient(of, false); err != nil {
			return 0, 0, err
		}
		defer client.CloseIdleConnections()
	}
	for range collections {
		found := map[string]int64{}
		if err := readHeap(ctx, client, of, found); err != nil {
			return 0, 0, err
		}
		heap, stacks = found["HeapAlloc"], found["Stack"]
	}
	return heap, stacks, nil
}

func readHeap(ctx context.Context, client *http.Client, of server, into map[string]int64) error {
	req, err := load{Server: of, Path: heapPath + "?gc=1&debug=1", Accept: "*/*"}.request(ctx)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	for _, figure := range heapFigures.FindAllSubmatch(text, -1) {
		if into[string(figure[1])], err = strconv.ParseInt(string(figure[2]), 10, 64); err != nil {
			return err
		}
	}
	if into["HeapAlloc"] == 0 || into["Stack"] == 0 {
		return fmt.Errorf("GET %s: %s, without the size of the heap", heapPath, resp.Status)
	}
	return nil
}

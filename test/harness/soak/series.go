package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
)

// Sum adds up the series of a counter or a gauge that have these labels; of a histogram, the numbers of its
// observations. It also returns how many series these are: none if nothing was counted yet.
func Sum(ctx context.Context, client *http.Client, url, name string, labels map[string]string) (sum float64, series int, err error) {
	err = families(ctx, client, url, func(family *dto.MetricFamily) {
		if family.GetName() != name {
			return
		}
		for _, one := range family.GetMetric() {
			matches := true
			for name, value := range labels {
				matches = matches && label(one, name) == value
			}
			if matches {
				sum += one.GetCounter().GetValue() + one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount())
				series++
			}
		}
	})
	return sum, series, err
}

// families reads the metrics at a URL.
func families(ctx context.Context, client *http.Client, url string, take func(*dto.MetricFamily)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", delimited)
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("reading metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("reading metrics: %s", resp.Status)
	}
	for in := bufio.NewReader(resp.Body); ; {
		family := &dto.MetricFamily{}
		switch err := protodelim.UnmarshalFrom(in, family); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading metrics: %w", err)
		}
		take(family)
	}
}

// label of a series, or "".
func label(series *dto.Metric, name string) string {
	for _, l := range series.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

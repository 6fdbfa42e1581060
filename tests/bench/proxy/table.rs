//! The report as text.

use crate::scenarios::Scenario;

/// Prints every scenario with its ratios to the first two ways.
pub fn print(report: &[Scenario]) {
    for scenario in report {
        println!("\n{}{}", scenario.name, if scenario.more_is_better { " (more is better)" } else { "" });
        print!("  {:<12}", "");
        for column in &scenario.columns {
            let [first, second] = scenario.against;
            print!("{column:>14}{:>9}{:>9}", format!("/{first}"), format!("/{second}"));
        }
        println!();
        for row in &scenario.rows {
            print!("  {:<12}", row.way);
            for (i, value) in row.values.iter().enumerate() {
                let ratio = |to: usize| {
                    let base = scenario.rows.get(to).and_then(|row| row.values.get(i)).copied().unwrap_or(f64::NAN);
                    format!("{:.2}", value / base)
                };
                print!("{value:>14.1}{:>9}{:>9}", ratio(0), ratio(1));
            }
            println!();
        }
    }
}

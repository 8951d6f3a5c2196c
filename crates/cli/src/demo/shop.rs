//! The demo's database: what a small shop keeps, and the statements that change it.

/// How the rows are spread: one customer to five orders to fourteen lines.
pub struct Sizes {
    pub customers: u64,
    pub orders: u64,
    pub lines: u64,
}

/// Rows of `carts`, on top of `--rows`: the table that is truncated under way.
pub const CARTS: u64 = 200;

impl Sizes {
    /// `rows` in all three tables together.
    pub fn of(rows: u64) -> Sizes {
        let customers = (rows / 20).max(1);
        let orders = (rows / 4).max(1);
        Sizes { customers, orders, lines: rows.saturating_sub(customers + orders).max(1) }
    }
}

pub const TABLES: &str = "
CREATE SCHEMA shop;
CREATE TABLE shop.customers (
  id int NOT NULL, name text NOT NULL, email text, city varchar(40), credit numeric(12,2) NOT NULL,
  is_business boolean NOT NULL, created_at timestamptz NOT NULL, note text);
CREATE TABLE shop.orders (
  id bigint NOT NULL, customer_id int NOT NULL, status text NOT NULL, total numeric(12,2) NOT NULL,
  placed_at timestamptz NOT NULL, ship_by date, tags text[]);
CREATE TABLE shop.order_lines (
  order_id bigint NOT NULL, line smallint NOT NULL, sku text NOT NULL, quantity int NOT NULL,
  price numeric(10,2) NOT NULL);
CREATE TABLE shop.carts (
  id int NOT NULL, customer_id int NOT NULL, content jsonb NOT NULL, touched_at timestamptz NOT NULL)";

/// One batch of statements for each of two connections, which run at the same time.
pub fn fill(sizes: &Sizes) -> [String; 2] {
    let Sizes { customers, orders, lines } = sizes;
    let first = format!(
        "INSERT INTO shop.customers SELECT g, 'Customer ' || g, 'c' || g || '@example.org',
           (ARRAY['Bergen','Lyon','Porto','Graz','Gent'])[1 + g % 5], (g * 37 % 100000) / 100.0, g % 9 = 0,
           timestamptz '2024-01-01 00:00+00' + g * interval '1 minute', CASE WHEN g % 4 = 0 THEN 'note ' || md5(g::text) END
           FROM generate_series(1, {customers}) g;
         INSERT INTO shop.orders SELECT g, 1 + g % {customers}, (ARRAY['new','paid','sent','done'])[1 + g % 4],
           (g * 731 % 1000000) / 100.0, timestamptz '2025-01-01 00:00+00' + g * interval '1 second',
           date '2025-01-01' + (g % 365)::int, CASE WHEN g % 3 = 0 THEN ARRAY['gift','express'] END
           FROM generate_series(1, {orders}) g;
         INSERT INTO shop.carts SELECT g, 1 + g % {customers}, jsonb_build_object('items', g % 7), now()
           FROM generate_series(1, {CARTS}) g;
         ALTER TABLE shop.customers ADD PRIMARY KEY (id);
         ALTER TABLE shop.orders ADD PRIMARY KEY (id);
         ALTER TABLE shop.carts ADD PRIMARY KEY (id)"
    );
    let second = format!(
        "INSERT INTO shop.order_lines SELECT 1 + g % {orders}, (1 + g / {orders})::smallint, 'SKU-' || g % 5000, 1 + g % 5,
           (g * 17 % 20000) / 100.0 FROM generate_series(0, {lines} - 1) g;
         ALTER TABLE shop.order_lines ADD PRIMARY KEY (order_id, line)"
    );
    [first, second]
}

/// Random numbers of the load: xorshift64*, the same for the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Evenly from 0 to `bound` - 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound.max(1)
    }

    /// A comma-separated list of `n` random ids from 1 to `bound`.
    fn ids(&mut self, n: u64, bound: u64) -> String {
        (0..n).map(|_| (1 + self.below(bound)).to_string()).collect::<Vec<_>>().join(",")
    }
}

/// Makes the transactions of one worker.
pub struct Shopper {
    pub dice: Dice,
    pub sizes: Sizes,
    /// Keys that this worker makes up start here; no other worker makes the same.
    pub next_id: u64,
}

impl Shopper {
    /// The statements of one transaction of about 20 row changes.
    pub fn transaction(&mut self) -> Vec<String> {
        let Sizes { customers, orders, .. } = self.sizes;
        let dice = &mut self.dice;
        match dice.below(20) {
            0..=6 => vec![format!(
                "UPDATE shop.orders SET status = 'sent', total = total + 0.01 WHERE id IN ({})",
                dice.ids(20, orders)
            )],
            7..=10 => self.new_order(),
            11..=14 => vec![format!(
                "UPDATE shop.order_lines SET quantity = quantity + 1 WHERE line = 1 AND order_id IN ({})",
                dice.ids(20, orders)
            )],
            15..=16 => {
                vec![format!("DELETE FROM shop.order_lines WHERE line = 1 AND order_id IN ({})", dice.ids(20, orders))]
            }
            // A key moves: a delete and a create for every copy.
            17 => vec![format!(
                "UPDATE shop.order_lines SET line = line + 1000 WHERE line = 1 AND order_id IN ({})",
                dice.ids(10, orders)
            )],
            18 => vec![format!(
                "UPDATE shop.customers SET credit = credit - 1, note = 'changed' WHERE id IN ({})",
                dice.ids(20, customers)
            )],
            _ => {
                let id = self.next_id;
                self.next_id += 1;
                vec![format!(
                    "INSERT INTO shop.carts VALUES ({id}, {}, '{{\"items\": 1}}', now())",
                    1 + self.dice.below(customers)
                )]
            }
        }
    }

    fn new_order(&mut self) -> Vec<String> {
        let id = self.next_id;
        self.next_id += 4;
        let customer = 1 + self.dice.below(self.sizes.customers);
        vec![
            format!(
                "INSERT INTO shop.orders SELECT g, {customer}, 'new', 12.34, now(), current_date, NULL \
                 FROM generate_series({id}, {id} + 3) g"
            ),
            format!(
                "INSERT INTO shop.order_lines SELECT o, l, 'SKU-' || l, 1, 9.99 \
                 FROM generate_series({id}, {id} + 3) o, generate_series(1, 4) l"
            ),
        ]
    }
}

/// What happens once, at a part of the load's time: (share of the time in percent, statements).
pub const EVENTS: &[(u64, &str)] = &[
    (40, "TRUNCATE shop.carts"),
    (60, "ALTER TABLE shop.customers ADD COLUMN tier text NOT NULL DEFAULT 'basic'"),
    (70, "UPDATE shop.customers SET tier = 'gold' WHERE id % 100 = 0"),
    (80, "UPDATE shop.customers SET id = -id WHERE id % 500 = 0"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_tables_have_the_rows_asked_for() {
        for rows in [100, 1000, 50_000, 1_000_000] {
            let sizes = Sizes::of(rows);
            assert_eq!(sizes.customers + sizes.orders + sizes.lines, rows);
            // `line` is a smallint, and moved keys add 1000 to it.
            assert!(sizes.lines / sizes.orders < 1000);
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_load() {
        let load = |seed| {
            let mut shopper = Shopper { dice: Dice::new(seed), sizes: Sizes::of(1000), next_id: 10_000 };
            (0..50).flat_map(|_| shopper.transaction()).collect::<Vec<_>>()
        };
        assert_eq!(load(7), load(7));
        assert_ne!(load(7), load(8));
    }
}
